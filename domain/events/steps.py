"""Steps and plans.

`step_started`, `progress`, `step_completed` and `replanning` belong to the task contract: names and fields are fixed.
"""

from domain.events.base import Event
from domain.plan import PlanStep


class StepStarted(Event):
    type = "step_started"
    step: int
    description: str


class StepCompleted(Event):
    type = "step_completed"
    step: int
    result: str


class Progress(Event):
    type = "progress"
    message: str


class HookFailed(Event):
    """A hook of the agent raised, took too long, or is not there; the session continues."""

    type = "hook_failed"
    hook: str
    point: str
    step: int
    error: str


class PlanUpdated(Event):
    type = "plan_updated"
    steps: list[PlanStep]


class Replanning(Event):
    type = "replanning"
    decisive = True
    reason: str
