"""Notices: news for a tenant that are not events of a session; their texts, and a notice as it is written."""

from datetime import UTC, datetime
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from domain.missions.mission import MissionStatus


class NoticeContent(BaseModel):
    model_config = ConfigDict(frozen=True)

    type: ClassVar[str]


class ConversationUpdated(NoticeContent):
    type = "conversation_updated"

    changed: list[str]


class SchedulePaused(NoticeContent):
    type = "schedule_paused"

    name: str
    schedule_id: str
    reason: str


class MissionEnded(NoticeContent):
    type = "mission_ended"

    name: str
    mission_id: str
    status: MissionStatus
    reason: str
    summary: str


class NewNotice(BaseModel):
    """A notice as the SQL function `give_notice` takes it."""

    model_config = ConfigDict(frozen=True)

    tenant: str
    conversation_id: str | None
    type: str
    at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    data: str  # JSON
    session_id: str | None = None  # set together with the event's number if the notice is about a session's event
    seq: int | None = None

    @classmethod
    def of(cls, tenant: str, conversation_id: str | None, content: NoticeContent) -> "NewNotice":
        return cls(tenant=tenant, conversation_id=conversation_id, type=content.type, data=content.model_dump_json())
