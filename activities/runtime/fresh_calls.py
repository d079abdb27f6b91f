"""Fresh calls: what a tool call needs from the store, kept by the worker that has just committed the call."""

import time

from activities.runtime.short_memory import ShortMemory
from domain.messages import ReplyBody
from domain.sessions.step import Effect
from domain.sessions.tool_writes import ToolAttempt
from store.messages import CallFacts
from store.tool_calls import ToolClaimResult


class FreshCalls:
    """Spares a read the claim, which is a round trip to the database. A read may be repeated, so nothing but its result
    has to be recorded; its commit is fenced like every other. Each call is handed out once: a retry asks the store."""

    def __init__(self) -> None:
        self._known = ShortMemory[tuple[float, ReplyBody, CallFacts]]()

    def remember(self, tenant: str, node: str, run: str | None, body: ReplyBody, facts: CallFacts) -> None:
        self._known.keep(tenant, node, run, (time.monotonic(), body, facts))

    def take(self, attempt: ToolAttempt) -> ToolClaimResult | None:
        """The claim of a read that this worker knows; None if the store has to be asked."""
        kept = self._known.take(attempt.tenant, attempt.node, attempt.run)
        if kept is None or attempt.effect is not Effect.READ or attempt.attempt > 1:
            return None
        at, body, facts = kept
        if facts.counted:
            return None
        return ToolClaimResult.model_construct(
            go=True,
            plan=facts.plan,
            workspace_version=facts.workspace_version,
            body=body,
            variables=facts.variables,
            next_step=facts.next_step,
            known_at=at,
        )
