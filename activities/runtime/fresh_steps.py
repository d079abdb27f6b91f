"""Fresh steps: what the next model call needs from the store, kept by the worker that has just committed the result
before it."""

from activities.runtime.short_memory import ShortMemory
from domain.sessions.session import Status
from domain.sessions.step import Purpose
from domain.sessions.step_writes import StepBegin
from store.messages import StepFacts


class FreshSteps:
    """Spares a model call the read of its facts, so that its beginning can be written beside the request. Facts that a
    signal announces as well, like a cancel or a message, reach the workflow first."""

    def __init__(self) -> None:
        self._known = ShortMemory[StepFacts]()

    def remember(self, tenant: str, node: str, run: str | None, facts: StepFacts, read_at: float | None = None) -> bool:
        """Keep the facts after the only call of `node`; False if the store decides about the next model call, or if
        they are old."""
        if facts.status is not Status.WORKING or facts.cancel_requested or facts.rerun or facts.tree is not None:
            return False
        return self._known.keep(tenant, node, run, facts, read_at)

    def take(self, begin: StepBegin) -> StepFacts | None:
        """The facts for a model call that this worker knows; None if the store has to be asked."""
        kept = self._known.take(begin.tenant, begin.head or "", begin.run)
        return None if begin.attempt > 1 or begin.take or begin.purpose is not Purpose.TURN else kept
