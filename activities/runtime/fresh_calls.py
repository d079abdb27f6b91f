"""Fresh calls: what a tool call needs from the store, kept by the worker that has just committed the call."""

import time
from collections import OrderedDict

from domain.messages import ReplyBody
from domain.sessions.step import Effect
from domain.sessions.tool_writes import ToolAttempt
from store.messages import CallFacts
from store.tool_calls import ToolClaimResult

MOST_KEPT = 256
FRESH_SECONDS = 1.0  # later somebody may have changed the plan, the variables or the workspace


class FreshCalls:
    """Spares a read the claim, which is a round trip to the database. A read may be repeated, so nothing but its result
    has to be recorded; its commit is fenced like every other. Each call is handed out once: a retry asks the store."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[float, str | None, ReplyBody, CallFacts]] = OrderedDict()

    def remember(self, tenant: str, node: str, run: str | None, body: ReplyBody, facts: CallFacts) -> None:
        self._known[tenant, node] = (time.monotonic(), run, body, facts)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)

    def take(self, attempt: ToolAttempt) -> ToolClaimResult | None:
        """The claim of a read that this worker knows; None if the store has to be asked."""
        kept = self._known.pop((attempt.tenant, attempt.node), None)
        if kept is None or attempt.effect is not Effect.READ or attempt.attempt > 1:
            return None
        at, run, body, facts = kept
        if run != attempt.run or facts.counted or time.monotonic() - at > FRESH_SECONDS:
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
