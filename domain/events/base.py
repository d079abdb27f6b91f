"""The fields that all events have, and an event as it is written to the log and read from it."""

from datetime import UTC, datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from domain.json_object import JsonObject
from domain.sessions.session import SessionRef


class Event(BaseModel):
    """The base of all events; `type` is the name that watchers see."""

    model_config = ConfigDict(frozen=True)

    type: ClassVar[str]
    terminal: ClassVar[bool] = False
    decisive: ClassVar[bool] = False  # listed in a result's short audit log

    def data(self) -> JsonObject:
        return self.model_dump(mode="json")


class CallAttempt(BaseModel):
    """The attempt of a model or tool call that emits an event. Once a newer attempt has begun, the log refuses it."""

    model_config = ConfigDict(frozen=True)

    call: str
    attempt: int


class EventRow(BaseModel):
    """An event as the SQL functions take it; they give it its numbers."""

    model_config = ConfigDict(frozen=True)

    tenant: str
    session_id: str
    conversation_id: str
    type: str
    terminal: bool
    at: datetime
    data: str  # JSON
    call: str | None = None  # as in CallAttempt; None: it is not part of a call
    attempt: int | None = None

    @classmethod
    def of(cls, ref: SessionRef, event: Event, at: datetime | None = None, by: CallAttempt | None = None) -> "EventRow":
        return cls(
            tenant=ref.tenant,
            session_id=ref.session_id,
            conversation_id=ref.conversation_id,
            type=event.type,
            terminal=event.terminal,
            at=at or datetime.now(UTC),
            data=event.model_dump_json(),
            call=by.call if by else None,
            attempt=by.attempt if by else None,
        )


class Recorded(BaseModel):
    """An event as the log stores it."""

    session_id: str
    seq: int
    conv_seq: int
    type: str
    at: datetime
    data: JsonObject = Field(default_factory=dict)
