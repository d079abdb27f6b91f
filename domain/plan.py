"""A plan: the steps that an agent intends to take, and whether a new version counts as replanning."""

from enum import StrEnum

from pydantic import Field

from domain.frozen import Closed


class StepState(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    DONE = "done"
    SKIPPED = "skipped"


class PlanStep(Closed):
    title: str = Field(min_length=1, max_length=300)
    status: StepState = StepState.PENDING


class Plan(Closed):
    steps: list[PlanStep] = Field(min_length=1, max_length=50)

    @property
    def current(self) -> int:
        """The 1-based step under way; the number of steps once all are settled."""
        for number, step in enumerate(self.steps, start=1):
            if step.status in (StepState.PENDING, StepState.IN_PROGRESS):
                return number
        return len(self.steps)


def is_replanned(old: Plan | None, new: Plan) -> bool:
    """Whether the steps differ. Ticking a step off is progress; other, fewer, more or reordered steps are a new
    plan."""
    return old is not None and [step.title for step in old.steps] != [step.title for step in new.steps]
