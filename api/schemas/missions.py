"""Bodies and records of /missions."""

from datetime import UTC, datetime
from typing import Any, Self

from errand import models
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.schedules import NewSchedule
from domain.missions import Mission, MissionRules, Spent
from domain.schedules import ContextMode, Overlap
from domain.task import Id, Strict


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


def mission_record(mission: Mission, today: Spent, total: Spent, requests: list[str]) -> models.Mission:
    fields: dict[str, Any] = mission.model_dump(include=set(models.Mission.model_fields))
    return models.Mission.model_validate({**fields, "today": today, "total": total, "requests": requests})
