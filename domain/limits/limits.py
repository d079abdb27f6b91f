"""Which limit is reached before the next model call, and the request for a last summary."""

from domain.sessions.session import Limits, Reason, Usage


def reached(limits: Limits, steps: int, usage: Usage) -> Reason | None:
    """The limit that forbids another step, if any, after `steps` steps."""
    if steps >= limits.steps:
        return Reason.STEP_LIMIT
    if limits.tokens is not None and usage.tokens >= limits.tokens:
        return Reason.TOKEN_BUDGET
    if limits.cost_usd is not None and (usage.cost_usd is None or usage.cost_usd >= limits.cost_usd):
        return Reason.COST_BUDGET
    return None


_LABELS = {
    Reason.STEP_LIMIT: "its limit of steps",
    Reason.TURN_LIMIT: "its limit of turns",
    Reason.TOKEN_BUDGET: "its token budget",
    Reason.COST_BUDGET: "its cost budget",
    Reason.TOOL_LIMIT: "its limit of tool calls",
    Reason.TREE_BUDGET: "the budget that it shares with its subagents and parents",
    Reason.TTL: "its time limit",
    Reason.LOOP_DETECTED: "the guard against repeating itself",
    Reason.POLICY_DENIED: "its limit of calls that the rules forbid",
}


def summary_request(reason: Reason) -> str:
    """Ask the model for one last reply that summarises the session."""
    return (
        f"This session has reached {_LABELS[reason]} and ends now; no more tools can be called. "
        "Reply with a short summary for the person who gave you the task: what was done and where the results are, "
        "what is unfinished, and what you would do next."
    )
