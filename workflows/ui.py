"""What the Temporal Web UI tells about a session and about a conversation, in Markdown."""

from domain.conversations.state import ConversationState
from domain.sessions.session import SessionInput, SessionState
from domain.sessions.step import Finished, ModelReply, ToolOutcome


def static_details(start: SessionInput) -> str:
    limits = start.limits
    lines = [
        f"**Agent** {start.agent.name} (version {start.agent.version}) · model {', then '.join(start.models)}",
        f"**Task** `{start.ref.session_id}` of conversation `{start.ref.conversation_id}`",
        f"**Tenant** {start.ref.tenant} · **trigger** {start.trigger}",
        f"**Limits** {limits.steps} steps · {limits.ttl_ms / 1000:g} s"
        + (f" · {limits.tokens} tokens" if limits.tokens else "")
        + (f" · {limits.cost_usd} USD" if limits.cost_usd else ""),
    ]
    return "\n\n".join(lines)


def current_details(
    start: SessionInput, state: SessionState, outcomes: list[ToolOutcome], finished: Finished | None = None
) -> str:
    usage = state.usage
    cost = "unknown" if usage.cost_usd is None else f"{usage.cost_usd:.4f} USD"
    lines = [
        f"**{finished.status if finished else 'working'}**" + (f" ({finished.reason})" if finished else ""),
        f"step {state.step} of at most {start.limits.steps} · {usage.tokens} tokens · {cost}",
    ]
    if state.line.doing and not finished:
        lines.append(f"doing: {state.line.doing}")
    lines += [f"- `{outcome.name}` {outcome.state}: {outcome.preview[:120]}" for outcome in outcomes]
    if finished and finished.preview:
        lines.append(finished.preview)
    return "\n\n".join(lines)


def conversation_details(state: ConversationState) -> str:
    """As it was when it began: who was at work, and what waited."""
    live = [f"- `{session_id}` {state.threads[live.thread].name}" for session_id, live in state.live.items()]
    return "\n\n".join(
        [f"**{state.title or 'a new conversation'}**", *live[:20], f"{len(state.pending)} outcomes waited"]
    )


def step_result(reply: ModelReply, outcomes: list[ToolOutcome]) -> str:
    """What a step came to, in a line."""
    if reply.calls:
        return ", ".join(f"{outcome.name} {outcome.state}" for outcome in outcomes)[:200]
    return "answered" if reply.stop_reason == "end_turn" else reply.stop_reason
