"""Requests of a session's loop to the activities that run its hooks, and their answers. Texts travel as references."""

from pydantic import BaseModel, Field

from domain.agents.hook import HookPoint
from domain.sessions.session import AgentRef, SessionRef


class HookList(BaseModel):
    """Ask which hooks an agent has."""

    ref: SessionRef
    agent: AgentRef


class HookPoints(BaseModel):
    points: list[HookPoint]


class HookSubject(BaseModel):
    """The subject of a moment; texts are found by these references."""

    model: str = ""
    node: str | None = None  # the assistant node of the reply
    indexes: list[int] = Field(default_factory=list)  # its calls
    messages: list[str] = Field(default_factory=list)  # in the inbox
    # for an inline line: "node/index" of the tool call whose prompt is its first message
    opening: str | None = Field(default=None, exclude_if=lambda value: value is None)
    children: list[str] = Field(default_factory=list, exclude_if=lambda value: not value)  # sessions that were started
    reason: str | None = None  # of the end
    error: str | None = None


class HookCall(HookSubject):
    """Run the hooks of one moment."""

    ref: SessionRef
    agent: AgentRef
    above: list[AgentRef] = Field(default_factory=list)
    point: HookPoint
    step: int
    line: str = "main"
    workspace_id: str


class HookOutcome(BaseModel):
    note: str | None = Field(default=None, exclude_if=lambda value: value is None)
    refusals: dict[int, str] = Field(default_factory=dict, exclude_if=lambda value: not value)  # by the call's index
