"""The additions of a task to the definition of its agent, for this task alone."""

from typing import Self

from pydantic import BaseModel, ConfigDict

from domain.agents.definition import AgentDefinition
from domain.json_object import JsonObject
from domain.model_exchange import ModelSettings
from domain.task import TaskConfig


class TaskTerms(BaseModel):
    model_config = ConfigDict(frozen=True)

    instructions: str | None = None
    output_schema: JsonObject | None = None
    model_settings: ModelSettings | None = None

    @classmethod
    def of(cls, config: TaskConfig) -> Self | None:
        """None if the task adds nothing, like most tasks."""
        given = {name: value for name in cls.model_fields if (value := getattr(config, name)) is not None}
        return cls.model_construct(**given) if given else None


def on_terms(agent: AgentDefinition, terms: TaskTerms | None) -> AgentDefinition:
    """The definition with the task's additions: its instructions after the prompt, and its output schema."""
    if terms is None:
        return agent
    changes: JsonObject = {}
    if terms.instructions:
        changes["prompt"] = f"{agent.prompt.strip()}\n\nFor this task:\n{terms.instructions.strip()}"
    if terms.output_schema is not None:
        changes["output_schema"] = terms.output_schema
    return agent.model_copy(update=changes)
