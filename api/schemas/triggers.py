"""Bodies and records of /triggers."""

from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.task import TaskSpec
from domain.triggers import EventTrigger, TriggerRules

# long enough that nobody can guess it, because the sender of an event has no other proof
TriggerSecret = Annotated[str, StringConstraints(min_length=16, max_length=500, pattern=r"^[!-~]+$")]


class NewTrigger(TriggerRules):
    """The body of PUT /triggers/{name}."""

    task: TaskSpec | None = Field(
        default=None,
        description="the task of the agent for each event; null: events only reach sessions that wait for them",
    )
    secret: TriggerSecret | None = Field(
        default=None, description="signs the events; Slack brings its own, else one is made and shown once"
    )

    @model_validator(mode="after")
    def _useful(self) -> Self:
        if self.task is None and self.correlation is None:
            raise PydanticCustomError("needs", "without a task a trigger needs a correlation")
        if self.task is None and self.conversation_id is not None:
            raise PydanticCustomError("excluded", "without a task no conversation gets a message")
        return self

    def rules(self) -> TriggerRules:
        return TriggerRules(
            **{name: getattr(self, name) for name in TriggerRules.model_fields if name in self.model_fields_set}
        )


def trigger_fields(trigger: EventTrigger) -> dict[str, Any]:
    session = trigger.session
    return {
        **trigger.rules.model_dump(),
        "id": trigger.id,
        "name": trigger.name,
        "url": f"/triggers/{trigger.id}",
        "agent": session.agent if session else None,
        "agent_version": session.agent_version if session else None,
        "prompt": trigger.prompt,
        "created_by": trigger.created_by,
        "created_at": trigger.created_at,
    }
