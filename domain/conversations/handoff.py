"""Handoff: an agent passes its thread, with all of its history, to another agent that has a human side."""

from pydantic import BaseModel, ConfigDict, Field

from domain.agents.sides import Sides
from domain.sessions.session import AgentRef, SessionRef
from domain.sessions.step import ToolOutcome

ALREADY_HANDED_OVER = "Not handed over to {}: this response already handed the thread over to {}."


class Successor(BaseModel):
    """The agent that runs a session after a handoff, with its models and tools."""

    model_config = ConfigDict(frozen=True)

    agent: AgentRef
    models: list[str]
    sides: Sides | None = None  # None: a plain agent
    tools: list[str] | None = None  # None: those of its definition


class HandOver(BaseModel):
    """A call of a handoff tool; its arguments stay in the assistant node."""

    ref: SessionRef
    agent: AgentRef
    model: str  # the line's current one, for an agent without its own
    node: str
    index: int
    name: str  # of the agent that takes over
    summary: str = ""
    step: int = 0
    before: str | None = None  # the agent to which the same response already handed it over


class HandOverOutcome(BaseModel):
    outcome: ToolOutcome
    to: Successor | None = Field(default=None, exclude_if=lambda value: value is None)  # None: it was refused


def handed_over(name: str) -> str:
    return f"Handed over to {name}."
