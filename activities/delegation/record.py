"""The record of delegation calls. They are claimed and answered like any tool call, so the next model call finds
them."""

from temporalio import activity

from activities.attempt import run_of
from activities.tools.tool import bound_text, clean
from domain import events as ev
from domain.conversations.subagents import Successor
from domain.events import EventRow
from domain.policy.rules import Rule
from domain.sessions.session import CallState, Effect, EffectKind, SessionRef, ToolOutcome, preview
from domain.sessions.writes import ToolAttempt, ToolClaim, ToolCommit
from store import events, tool_calls
from store.database import Pool

HOLDER = "delegation"  # two activities begin and settle one call, so they share its claim


class DelegationRecord:
    def __init__(self, pool: Pool, ref: SessionRef, node: str) -> None:
        self._pool = pool
        self._ref = ref
        self._node = node

    async def claim(
        self, index: int, tool: str, summary: str, kind: EffectKind | None = None, *, asks: bool = False
    ) -> ToolOutcome | None:
        """Claim the call. None: this activity must make it; else its earlier result."""
        attempt = self._attempt(index, tool)
        claim = await tool_calls.claim(self._pool, ToolClaim.by(attempt, self._ref, summary, kind, asks=asks))
        if claim.go:
            return None
        known = _outcome(index, tool, claim.state or CallState.UNKNOWN, claim.text or "")
        return known.model_copy(update={"spent": claim.spent})

    async def settle(
        self,
        index: int,
        tool: str,
        state: CallState,
        text: str,
        events: list[ev.Event],
        rule: Rule | None = None,
        handed_to: Successor | None = None,
    ) -> ToolOutcome:
        """Record the result of the call; `rule` denied it, `handed_to` runs the session after it."""
        text, _ = bound_text(clean(text), 60_000)
        returned = ev.ToolReturned(tool=tool, state=state, preview=preview(text), rule=rule)
        rows = [EventRow.of(self._ref, event) for event in (*events, returned)]
        await tool_calls.commit(
            self._pool,
            ToolCommit(
                **self._attempt(index, tool).model_dump(exclude={"tool", "effect"}),
                state=state,
                result=text,
                events=rows,
                denied=rule is not None,
                rule=str(rule) if rule else None,
                handed_to=handed_to,
            ),
        )
        return _outcome(index, tool, state, text).model_copy(
            update={"denied": rule is not None, "forbidden": rule is not None}
        )

    async def emit(self, index: int, event: ev.Event) -> None:
        """Emit an event of an open call. The batch is named after the call, so a repetition is written once."""
        await events.append(
            self._pool,
            f"{self._node}/{index}/{event.type}",
            [EventRow.of(self._ref, event)],
            again=activity.info().attempt > 1,
        )

    def _attempt(self, index: int, tool: str) -> ToolAttempt:
        return ToolAttempt(
            tenant=self._ref.tenant,
            session_id=self._ref.session_id,
            run=run_of(self._ref),
            node=self._node,
            call_index=index,
            tool=tool,
            effect=Effect.IDEMPOTENT,
            holder=HOLDER,
            attempt=1,
        )


def _outcome(index: int, tool: str, state: CallState, text: str) -> ToolOutcome:
    return ToolOutcome(index=index, name=tool, state=state.for_model, preview=preview(text, 160))
