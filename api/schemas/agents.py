"""Responses of /agents."""

from pydantic import BaseModel, Field

from domain.agents.definition import AgentDefinition
from domain.sessions.session import AgentRef


class AgentRecord(AgentDefinition):
    version: int
    shipped: bool = Field(description="true: the agent was shipped as a file; false: a tenant defined it")

    @classmethod
    def of(cls, ref: AgentRef, definition: AgentDefinition) -> "AgentRecord":
        # Not validated again: an agent file may have a packaging `version`, which is different from this one.
        return cls.model_construct(**dict(definition), version=ref.version, shipped=ref.owner == "*")


class AgentPage(BaseModel):
    items: list[AgentRecord]


class AgentVersions(BaseModel):
    items: list[int] = Field(description="oldest first")
