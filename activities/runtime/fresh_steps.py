"""Fresh steps: what the next model call needs from the store, kept by the worker that has just committed the result
before it."""

import time
from collections import OrderedDict

from domain.sessions.session import Status
from domain.sessions.step import Purpose
from domain.sessions.step_writes import StepBegin
from store.messages import StepFacts

MOST_KEPT = 256
FRESH_SECONDS = 1.0  # later somebody may have changed the limits, the variables or the subagents


class FreshSteps:
    """Spares a model call the read of its facts, so that its beginning can be written beside the request. Facts that a
    signal announces as well, like a cancel or a message, reach the workflow first."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[float, str | None, StepFacts]] = OrderedDict()

    def remember(self, tenant: str, node: str, run: str | None, facts: StepFacts, read_at: float | None = None) -> bool:
        """Keep the facts after the only call of `node`; False if the store decides about the next model call, or if
        they are old."""
        now = time.monotonic()
        if facts.status is not Status.WORKING or facts.cancel_requested or facts.rerun or facts.tree is not None:
            return False
        if read_at is not None and now - read_at > FRESH_SECONDS:
            return False
        self._known[tenant, node] = (read_at or now, run, facts)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return True

    def take(self, begin: StepBegin) -> StepFacts | None:
        """The facts for a model call that this worker knows; None if the store has to be asked."""
        kept = self._known.pop((begin.tenant, begin.head or ""), None)
        if kept is None or begin.attempt > 1 or begin.take or begin.purpose is not Purpose.TURN:
            return None
        at, run, facts = kept
        return facts if run == begin.run and time.monotonic() - at <= FRESH_SECONDS else None
