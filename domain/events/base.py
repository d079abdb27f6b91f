"""What every event has in common, and an event as the log keeps it."""

from datetime import datetime
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


class Event(BaseModel):
    """The base of all events; `type` is the name that watchers see."""

    model_config = ConfigDict(frozen=True)

    type: ClassVar[str]
    terminal: ClassVar[bool] = False

    def data(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class Recorded(BaseModel):
    """An event as the log keeps it."""

    session_id: str
    seq: int
    conv_seq: int
    type: str
    at: datetime
    data: dict[str, Any] = Field(default_factory=dict)
