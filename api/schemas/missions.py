"""Bodies and records of /missions."""

from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.schedules import NewSchedule
from domain.missions import Mission, MissionRules, MissionStatus, Spent
from domain.schedules import ContextMode, Overlap
from domain.task import Id, Strict
from store.schedule_runs import RunRecord


class NewMission(NewSchedule, MissionRules):
    """The body of POST /missions: a schedule and its bounds."""

    @model_validator(mode="after")
    def _one_run_at_a_time(self) -> Self:
        if self.overlap not in (Overlap.SKIP, Overlap.QUEUE) or self.context is ContextMode.FORK:
            raise PydanticCustomError("excluded", "a mission has one run at a time: overlap skip or queue, no fork")
        if self.conversation_id is not None:
            raise PydanticCustomError("excluded", "a mission has its own conversation")
        if self.expires_at is not None and self.expires_at <= datetime.now(UTC):
            raise PydanticCustomError("past", "a mission expires in the future")
        return self

    def mission_rules(self) -> MissionRules:
        return MissionRules(**{name: getattr(self, name) for name in MissionRules.model_fields})


class MissionFiles(Strict):
    """The body of PUT /missions/{mission_id}/files."""

    files: list[Id] = Field(default_factory=list, max_length=100, description="ids of files")
    archives: list[Id] = Field(default_factory=list, max_length=5, description="ids of tar archives, unpacked")


class MissionRecord(BaseModel):
    """A mission has no result: it keeps working until it is cancelled, expired, stopped or out of budget."""

    id: str
    name: str
    status: MissionStatus
    paused: bool
    pause_reason: str | None
    requests: list[str] = Field(description="input requests that its runs wait for")
    reason: str | None = Field(description="why it ended")
    summary: str | None = Field(description="of a mission that has ended")
    conversation_id: str
    schedule_id: str
    rules: MissionRules
    today: Spent
    total: Spent
    created_by: str
    created_at: datetime
    ended_at: datetime | None


class MissionPage(BaseModel):
    items: list[MissionRecord]
    next_cursor: str | None


class MissionRunPage(BaseModel):
    items: list[RunRecord]


def mission_record(mission: Mission, today: Spent, total: Spent, requests: list[str]) -> MissionRecord:
    fields: dict[str, Any] = {
        name: getattr(mission, name) for name in Mission.model_fields if name in MissionRecord.model_fields
    }
    return MissionRecord(**fields, today=today, total=total, requests=requests)
