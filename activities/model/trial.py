"""The trial call of the default model when a worker starts, so that a bad key is reported before the first task."""

import logging
import math
import time

from activities.model.check import ModelCheck

AGAIN_SECONDS = 60.0
log = logging.getLogger("errand.worker")


class ModelTrial:
    """Tries the default model once, and again every minute while that fails."""

    def __init__(self, check: ModelCheck, model: str) -> None:
        self._check = check
        self._model = model
        self._next = 0.0
        self.problems: list[str] = []

    async def run(self) -> bool:
        """Try the model; True if the result is new."""
        if time.monotonic() < self._next:
            return False
        problem = await self._check.trial(self._model)
        found = [f"model: {problem}"] if problem else []
        self._next = time.monotonic() + AGAIN_SECONDS if problem else math.inf
        changed, self.problems = found != self.problems, found
        if changed:
            log.info("the model %s can be called", self._model) if problem is None else log.error("%s", found[0])
        return changed
