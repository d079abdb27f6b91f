"""When a session stops, and what it may still use: limits, the reaction to a reply, loops, budgets, anomalies."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, Field

from domain.agents.definition import Binding, Side
from domain.amounts import format_count
from domain.events import Anomaly
from domain.frozen import Frozen
from domain.sessions.session import Limits, ModelReply, Reason, StopReason, ToolOutcome, Usage

# Which limit is reached before the next model call, and the request for a last summary.


def find_reached_limit(limits: Limits, steps: int, usage: Usage) -> Reason | None:
    """The limit that forbids another step, if any, after `steps` steps."""
    spent = [share.kind for share in shares(limits, steps, usage) if share.left <= 0]
    return next((reason for kind, reason in _REASONS.items() if kind in spent), None)


_REASONS = {"steps": Reason.STEP_LIMIT, "tokens": Reason.TOKEN_BUDGET, "cost_usd": Reason.COST_BUDGET}
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


# The reaction to a model reply: act on its tool calls, ask again, or stop. The rules are checked in this order.


class Next(StrEnum):
    ACT = "act"  # run the tool calls, then ask again
    ASK_AGAIN = "ask_again"  # nothing to run, but the reply is not final
    COMPACT = "compact"  # the context no longer fits
    STOP = "stop"


class Decision(BaseModel):
    next: Next
    reason: Reason | None = None
    error_type: str | None = None
    error: str | None = None


CUT_OFF = "Your last reply was cut off at the length limit of one reply. Continue from there, in smaller pieces."


def decide_next(reply: ModelReply) -> Decision:
    if reply.stop_reason is StopReason.DECLINED:
        return Decision(
            next=Next.STOP,
            reason=Reason.ERROR,
            error_type="refusal",
            error="The model declined to continue this task.",
        )
    if reply.calls:
        return Decision(next=Next.ACT)
    if reply.stop_reason is StopReason.CONTEXT_FULL:
        return Decision(next=Next.COMPACT)
    if reply.stop_reason in (StopReason.CUT_OFF, StopReason.PAUSED):
        return Decision(next=Next.ASK_AGAIN)
    return Decision(next=Next.STOP, reason=Reason.GOAL_REACHED)


# When a side's turn, or the whole session, is over: the rules of an agent's side, in the order of the standard.


class SideVerdict(StrEnum):
    FAIL_SESSION = "fail_session"  # the session_fail tool was called
    STOP_SESSION = "stop_session"  # the session_stop tool was called
    END_TURN = "end_turn"  # the other side continues
    STEP_LIMIT = "step_limit"  # this side has used all of its steps
    TURN_LIMIT = "turn_limit"  # the turn is over, and the session has no further one
    ACT = "act"  # the side continues: its tools run, or it is asked again


@dataclass(frozen=True)
class SideDecision:
    verdict: SideVerdict
    call: int | None = None  # the index of the call that decided


def judge_response(
    side: Side,
    calls: Sequence[str],
    *,
    ends: Literal["stop", "fail"] | None = None,
    steps: int,
    turns: int,
    max_session_turns: int | None,
) -> SideDecision:
    """Judge one response of a side, given the names of its tool calls in order.

    A handler's reply may end the session without a tool (`ends`), which counts like a call of the bound tool.
    `steps` are those the side has taken in this session with this one, `turns` the completed turns of the session.
    The order is that of the standard: bindings that end the session (a failure before a success), the side's stop tool,
    a response without calls, then the safety limits. So a response that fails the session and also reaches a limit has
    failed it.
    """
    for verdict, binding, word in (
        (SideVerdict.FAIL_SESSION, side.session_fail, "fail"),
        (SideVerdict.STOP_SESSION, side.session_stop, "stop"),
    ):
        index = _find_call(calls, binding)
        if index is not None or ends == word:
            return SideDecision(verdict, index)
    ends_turn = False
    stopping_call = None
    if side.stop_tool is not None and side.stop_tool in calls:
        ends_turn, stopping_call = True, list(calls).index(side.stop_tool)
    elif side.stop_on_response and not calls:
        ends_turn = True
    if ends_turn:
        last = max_session_turns is not None and turns + 1 >= max_session_turns
        return SideDecision(SideVerdict.TURN_LIMIT if last else SideVerdict.END_TURN, stopping_call)
    if side.max_steps is not None and steps >= side.max_steps:
        return SideDecision(SideVerdict.STEP_LIMIT)
    return SideDecision(SideVerdict.ACT)


def _find_call(calls: Sequence[str], binding: Binding | None) -> int | None:
    return list(calls).index(binding.name) if binding is not None and binding.name in calls else None


# Loop detection: an agent that repeats itself without effect is warned, then stopped.
#
# Steps are compared by a digest of their calls and results, so polling with changing results is not a loop. Neither is
# waiting: a step whose tools took a while, or one that polls subagents, starts a new trail.


WAITED_SECONDS = 10.0  # tools that took this long were waiting for something
LONGEST_PERIOD = 3  # steps that alternate: A B A B, A B C A B C
STALE = 3  # this many steps without anything new, in any order, count as one repetition

WARNING = (
    "You have made the same calls with the same results several times; nothing new has come of it. Do something else: "
    "change the arguments, try another tool, or answer with what you have. If this continues, the session is ended."
)


class LoopVerdict(StrEnum):
    FINE = "fine"
    WARN = "warn"
    BREAK = "break"


def call_digest(tool: str, arguments: Any, state: str, text: str) -> str:
    content = json.dumps([tool, arguments, state, text], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def extend_trail(trail: list[str], outcomes: Sequence[ToolOutcome], waited: float, repeats: int) -> list[str]:
    """The trail with one more step; empty after a step that cannot count as a repetition."""
    digests = [outcome.digest for outcome in outcomes]
    if not digests or None in digests or waited >= WAITED_SECONDS:
        return []
    step = "".join(sorted(str(digest) for digest in digests))
    token = hashlib.sha256(step.encode()).hexdigest()[:12]
    return [*trail, token][-2 * STALE * repeats :]


def judge_trail(trail: Sequence[str], warning: int, repeats: int) -> LoopVerdict:
    seen = count_repetitions(trail)
    if seen >= repeats:
        return LoopVerdict.BREAK
    return LoopVerdict.WARN if seen >= warning > count_repetitions(trail[:-1]) else LoopVerdict.FINE


def count_repetitions(trail: Sequence[str]) -> int:
    """How often the newest steps were repeated: in a row, alternating, or in any order without anything new."""
    rounds = max((_rounds(trail, period) for period in range(1, LONGEST_PERIOD + 1)), default=0)
    return max(rounds, _stale(trail) // STALE)


def _rounds(trail: Sequence[str], period: int) -> int:
    """How many times the last `period` steps are repeated at the end of the trail."""
    newest = trail[::-1]
    pattern = newest[:period]
    count = 0
    while len(pattern) == period and newest[count * period : (count + 1) * period] == pattern:
        count += 1
    return count


def _stale(trail: Sequence[str]) -> int:
    """How many of the newest steps are repetitions of earlier ones."""
    count = 0
    for index in range(len(trail) - 1, 0, -1):
        if trail[index] not in trail[:index]:
            break
        count += 1
    return count


# Budgets: what is left of a session's limits and of its tree's, and what a model call may reserve.


LEAST_REPLY = 256  # tokens; a budget with less room than this counts as spent
TTL = "ttl"
KINDS = {"steps": "steps", "tokens": "tokens", "cost_usd": "money", "tool_calls": "tool calls"}


class BudgetLimits(Frozen):
    """The most that all sessions of a conversation may use together. None: no such limit."""

    deadline: datetime | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_tool_calls: int | None = None


class TreeBudget(BudgetLimits):
    """The limits of a conversation, and what its sessions have used."""

    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    tool_calls: int = 0

    def shares(self) -> "list[Share]":
        figures = [(kind, getattr(self, f"max_{kind}"), getattr(self, kind)) for kind in KINDS]
        return [Share(kind=kind, limit=limit, used=used) for kind, limit, used in figures if limit is not None]


class Share(Frozen):
    """One limit and what was used of it."""

    kind: str
    limit: float
    used: float

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.used)

    @property
    def low(self) -> bool:
        """Whether watchers get a `budget_low`; `settle_budget.sql` has the same part."""
        return self.left <= self.limit / 5


def time_of(limits: Limits, created_at: datetime | None, deadline: datetime, now: datetime) -> Share:
    """The time budget of one session: its own TTL, or less if its tree had less left when it was created."""
    given = (deadline - created_at).total_seconds() * 1_000 if created_at else limits.ttl_ms
    span = (
        limits.ttl_ms if given > limits.ttl_ms - 1_000 else round(given)
    )  # the row is written a moment after the deadline is computed
    left = max(0.0, (deadline - now).total_seconds() * 1_000)
    return Share(kind=TTL, limit=span, used=max(0.0, span - left))


def shares(limits: Limits, steps: int, usage: Usage, time: Share | None = None) -> list[Share]:
    """The budgets of one session. An unknown cost counts as the whole budget."""
    cost = usage.cost_usd if usage.cost_usd is not None else limits.cost_usd
    figures = (
        ("steps", limits.steps, steps),
        ("tokens", limits.tokens, usage.tokens),
        ("cost_usd", limits.cost_usd, cost),
        ("tool_calls", limits.tool_calls, usage.tool_invocations),
    )
    found = [Share(kind=kind, limit=limit, used=used or 0) for kind, limit, used in figures if limit is not None]
    return found if time is None else [*found, time]


class BudgetChange(BaseModel):
    """One limit that was raised."""

    budget: str
    before: int | float
    limit: int | float


class Raise(BaseModel):
    """New limits of a running session, and of its tree by kind. None: unchanged."""

    ttl_ms: int | None = None
    steps: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    tool_calls: int | None = None
    tree: dict[str, int | float] = Field(default_factory=dict)

    def limits(self, before: Limits) -> Limits:
        if not self.changes(before):
            return before
        given = self.model_dump(exclude={"tree"}, exclude_none=True)
        return before.raise_to(before.model_copy(update={**given, "raised": True}))

    def changes(self, before: Limits) -> list[BudgetChange]:
        return _higher(self.model_dump(exclude={"tree"}), before.model_dump())

    def tree_changes(self, before: TreeBudget) -> list[BudgetChange]:
        return _higher(self.tree, {share.kind: share.limit for share in before.shares()})


def _higher(wanted: Mapping[str, int | float | None], before: Mapping[str, Any]) -> list[BudgetChange]:
    return [
        BudgetChange(budget=TTL if kind == "ttl_ms" else kind, before=before[kind], limit=limit)
        for kind, limit in wanted.items()
        if limit is not None and before.get(kind) is not None and limit > before[kind]
    ]


def budget_note(own: Sequence[Share], tree: Sequence[Share]) -> str:
    """The note about remaining budget that the model gets before each step."""
    text = "Left to this session: " + ", ".join(map(_left, own)) + "."
    if tree:
        text += " Left to you and all subagents together: " + ", ".join(map(_left, tree)) + "."
    return f"<budget>{text}</budget>"


def _left(share: Share) -> str:
    left = figure(share.kind, share.left)
    if share.kind in ("cost_usd", TTL):
        return left
    return format_count(round(share.left), KINDS[share.kind].removesuffix("s"))


def figure(kind: str, value: float) -> str:
    """An amount of one budget, formatted for people and models."""
    if kind == "cost_usd":
        return f"${value:.4f}"
    if kind == TTL:
        return f"{value / 60_000:.1f} minutes" if value >= 60_000 else format_count(round(value / 1_000), "second")
    return f"{value:,.0f}"


class CallEstimate(BaseModel):
    """The most that a model call may use. A cost of None means unknown."""

    input_tokens: int
    output_tokens: int
    input_usd: float | None = 0.0
    output_usd: float | None = 0.0  # cost of all output tokens


class Reserved(BaseModel):
    """The amounts that other running calls of the tree have reserved."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


class Grant(BaseModel):
    """The granted length of the reply. Or the reason for a refusal: a budget is spent, or others hold it and may
    release some."""

    output_tokens: int = 0
    wait: bool = False
    spent: str | None = None  # one of KINDS

    @property
    def given(self) -> bool:
        return self.output_tokens > 0


def grant(budget: TreeBudget, held: Reserved, wanted: CallEstimate) -> Grant:
    """Grant the whole estimate, or, once nobody else holds a reservation, as much as is left."""
    free = _room(budget, Reserved(), wanted)
    for kind, tokens in free.items():
        if tokens < min(LEAST_REPLY, wanted.output_tokens):
            return Grant(spent=KINDS[kind])
    now = min(_room(budget, held, wanted).values(), default=wanted.output_tokens)
    if now >= wanted.output_tokens:
        return Grant(output_tokens=wanted.output_tokens)
    return Grant(wait=True) if held.calls else Grant(output_tokens=now)


def _room(budget: TreeBudget, held: Reserved, wanted: CallEstimate) -> dict[str, int]:
    """How many reply tokens each limit allows."""
    room: dict[str, int] = {}
    if budget.max_steps is not None:
        room["steps"] = wanted.output_tokens if budget.steps + held.calls < budget.max_steps else 0
    if budget.max_tokens is not None:
        room["tokens"] = max(0, budget.max_tokens - budget.tokens - held.tokens - wanted.input_tokens)
    if budget.max_cost_usd is not None:
        left = budget.max_cost_usd - budget.cost_usd - held.cost_usd - (wanted.input_usd or 0)
        known = wanted.input_usd is not None and wanted.output_usd is not None
        share = 1.0 if not wanted.output_usd else left / wanted.output_usd
        room["cost_usd"] = max(0, int(wanted.output_tokens * min(1.0, share))) if known and left > 0 else 0
    return room


# Anomalies: unusual figures of one session that people should look at. Each is reported once.


FEWEST_CALLS = 10  # with fewer calls an error rate is meaningless


MOST_FAILED = 0.5  # of the tool calls
MOST_SPENT = 1.0  # dollars a minute
MOST_DENIED = 5  # calls that a rule or a person denied


def find_anomalies(usage: Usage, failed: int, denied: int, seconds: float) -> list[Anomaly]:
    found: list[Anomaly] = []
    calls = usage.tool_invocations
    if calls >= FEWEST_CALLS and failed / calls >= MOST_FAILED:
        found.append(Anomaly(kind="error_rate", value=round(failed / calls, 3), threshold=MOST_FAILED))
    rate = (usage.cost_usd or 0) / max(1.0, seconds / 60)
    if rate >= MOST_SPENT:
        found.append(Anomaly(kind="spend_rate", value=round(rate, 6), threshold=MOST_SPENT))
    if denied >= MOST_DENIED:
        found.append(Anomaly(kind="denied_calls", value=denied, threshold=MOST_DENIED))
    return found
