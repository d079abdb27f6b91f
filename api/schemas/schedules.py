"""Bodies and records of /schedules."""

from datetime import datetime
from typing import Annotated, Any

from errand import models
from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from domain.schedules import Schedule, ScheduleRules
from domain.task import Strict, TaskSpec


class NewSchedule(ScheduleRules):
    task: TaskSpec = Field(description="what each run does; its input is the message")

    def rules(self) -> ScheduleRules:
        return ScheduleRules(**{name: getattr(self, name) for name in ScheduleRules.model_fields})


class PauseBody(Strict):
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class BackfillBody(Strict):
    start: AwareDatetime = Field(strict=False)
    end: AwareDatetime = Field(strict=False)


class Triggered(BaseModel):
    scheduled_at: datetime = Field(description="names the run in the list of runs")


def schedule_record(schedule: Schedule, runs: dict[str, int], next_times: list[datetime] | None) -> models.Schedule:
    rules: dict[str, Any] = {name: getattr(schedule.rules, name) for name in ScheduleRules.model_fields}
    return models.Schedule(
        **{**rules, "conversation_id": schedule.conversation_id},
        id=schedule.id,
        agent=schedule.session.agent,
        agent_version=schedule.session.agent_version,
        prompt=schedule.prompt,
        paused=schedule.paused,
        pause_reason=schedule.pause_reason,
        failures=schedule.failures,
        runs=runs,
        next_times=[] if schedule.paused else next_times,
        created_by=schedule.created_by,
        created_at=schedule.created_at,
    )
