"""Events of a task. Events that programs act on have their own classes; the others are plain `Event`s."""

from datetime import datetime
from typing import Any, ClassVar

from pydantic import ValidationError

from errand.models import Ending, JsonObject, Status
from errand.models import Event as Event


class StepStarted(Event):
    step: int
    description: str


class StepCompleted(Event):
    step: int
    result: str


class ProgressMade(Event):
    message: str


class MessageDelta(Event):
    step: int
    text: str


class Message(Event):
    step: int
    text: str


class ToolCalled(Event):
    tool: str
    args: str
    arguments: JsonObject | None = None


class ToolReturned(Event):
    tool: str
    state: str
    preview: str


class ArtifactSaved(Event):
    name: str
    artifact_type: str
    file_id: str
    size: int


class InputRequired(Event):
    request_id: str
    kind: str
    question: str
    deadline: datetime


class Ended(Ending, Event):
    """The last event of a task, however it ended: see `status` and `reason`."""

    ended: ClassVar[bool] = True

    status: Status


CLASSES: dict[str, type[Event]] = {
    "step_started": StepStarted,
    "step_completed": StepCompleted,
    "progress": ProgressMade,
    "message_delta": MessageDelta,
    "message": Message,
    "tool_called": ToolCalled,
    "tool_returned": ToolReturned,
    "artifact_saved": ArtifactSaved,
    "input_required": InputRequired,
    "task_completed": Ended,
    "task_failed": Ended,
    "task_cancelled": Ended,
}


def event_of(data: Any) -> Event:
    """An event; one whose fields are not as expected, of another version of the server, is a plain event."""
    try:
        return CLASSES.get(str(data["type"]), Event).model_validate(data)
    except (ValidationError, LookupError, TypeError):
        return Event.model_validate(data)
