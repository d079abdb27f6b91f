"""Errand's Python client: submit a task, hang up, come back to the result. See docs/client.md.

Read client.py for the operations, models.py for the responses, which are those of the API itself, and transport.py for
how requests are repeated. The package imports nothing of the application.
"""

from errand.client import AsyncErrand, Errand
from errand.errors import (
    Conflict,
    ErrandError,
    Invalid,
    NotAllowed,
    NotFound,
    Problem,
    RateLimited,
    Unexpected,
    Unreachable,
)
from errand.events import Ended, Event
from errand.models import Artifact, File, InputRequest, Result, SessionHandle, Task, TaskHandle

__version__ = "0.1.0"

__all__ = [
    "Artifact",
    "AsyncErrand",
    "Conflict",
    "Ended",
    "Errand",
    "ErrandError",
    "Event",
    "File",
    "InputRequest",
    "Invalid",
    "NotAllowed",
    "NotFound",
    "Problem",
    "RateLimited",
    "Result",
    "SessionHandle",
    "Task",
    "TaskHandle",
    "Unexpected",
    "Unreachable",
    "__version__",
]
