"""Errand's Python client: submit a task, hang up, come back to the result. See docs/client.md."""

from errand.async_client import AsyncErrand
from errand.client import Errand
from errand.errors import Conflict, ErrandError, Invalid, NotAllowed, NotFound, Problem, Unreachable
from errand.events import Event
from errand.models import Artifact, File, InputRequest, Result, SessionHandle, Task, TaskHandle

__all__ = [
    "Artifact",
    "AsyncErrand",
    "Conflict",
    "Errand",
    "ErrandError",
    "Event",
    "File",
    "InputRequest",
    "Invalid",
    "NotAllowed",
    "NotFound",
    "Problem",
    "Result",
    "SessionHandle",
    "Task",
    "TaskHandle",
    "Unreachable",
]
