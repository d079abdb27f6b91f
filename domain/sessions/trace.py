"""A trace: a session's model and tool calls step by step, with times and costs, and the traces of its subagents."""

from collections.abc import Iterator
from datetime import datetime

from pydantic import BaseModel, Field

from domain.sessions.rerun import Rerun
from domain.sessions.session import Reason, Status, Usage


class ModelSpan(BaseModel):
    """One call of the model."""

    model: str
    started_at: datetime
    ended_at: datetime
    attempts: int = 1
    thinking: str = Field(default="", description="its thinking, as the model summarised it")
    text: str = Field(default="", description="what it said; before tool calls, why it makes them")
    usage: Usage


class ToolSpan(BaseModel):
    """One tool call; `steps` or `sessions` hold what a subagent did inside it."""

    index: int
    tool: str
    arguments: str = Field(description="JSON")
    effect: str
    state: str = Field(description="started, ok, failed, unknown or cancelled")
    result: str
    started_at: datetime
    ended_at: datetime | None
    steps: list["StepTrace"] = Field(default_factory=list, description="of a subagent that ran inside this session")
    sessions: list["Trace"] = Field(default_factory=list, description="of subagents with separate sessions")


class StepTrace(BaseModel):
    """Plan, act, observe: the model's text, the calls it made and their results."""

    step: int
    started_at: datetime
    side: str = Field(default="a", exclude_if=lambda side: side == "a", description="of an agent with two AI sides")
    speaker: str | None = Field(default=None, exclude_if=lambda speaker: speaker is None, description="its label")
    models: list[ModelSpan] = Field(default_factory=list)
    tools: list[ToolSpan] = Field(default_factory=list)


class Mark(BaseModel):
    """An event between the calls: a new plan, a wait for a person, a retry, a message."""

    at: datetime
    type: str
    text: str
    until: datetime | None = Field(
        default=None,
        exclude_if=lambda until: until is None,
        description="of a retry or a wait for a person: when the next attempt began, or the answer arrived",
    )


class Trace(BaseModel):
    session_id: str
    conversation_id: str
    agent: str
    agent_version: int
    name: str | None = Field(description="of a subagent: how its parent calls it")
    title: str
    status: Status
    reason: Reason | None
    partial: bool
    error: str | None
    output: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    usage: Usage
    rerun_of: Rerun | None = None
    steps: list[StepTrace] = Field(default_factory=list)
    marks: list[Mark] = Field(default_factory=list)
    sessions: list["Trace"] = Field(default_factory=list, description="of subagents that no call of a step started")
    complete: bool = Field(default=True, description="false: there is more than a trace shows")

    @property
    def child_sessions(self) -> list["Trace"]:
        """The traces of subagents with separate sessions that this session started."""
        inside = [child for step in every_step(self.steps) for call in step.tools for child in call.sessions]
        return [*inside, *self.sessions]

    @property
    def session_ids_below(self) -> list[str]:
        """The ids of all subagents with separate sessions, at any depth."""
        return [found for child in self.child_sessions for found in (child.session_id, *child.session_ids_below)]


def every_step(steps: list[StepTrace]) -> Iterator[StepTrace]:
    """All steps, with those that subagents took inside a call after the step of that call."""
    for step in steps:
        yield step
        for call in step.tools:
            yield from every_step(call.steps)
