"""Writes of the store about a model call: its beginning, its retries and its reply. The SQL functions `begin_step`,
`note_retry` and `commit_step` read exactly these fields; only the store dumps these models."""

from typing import Annotated

from pydantic import Field

from domain.events import EventRow, ModelRetry
from domain.messages import Node
from domain.sessions.session import Usage
from domain.sessions.session_writes import AsText, Write
from domain.sessions.step import ModelReply, Purpose


class StepBegin(Write):
    tenant: str
    session_id: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
    idem: str  # equal in all attempts of a call
    version: int
    step: int
    attempt: int
    head: str | None = None
    take: list[str] = Field(default_factory=list)  # messages that enter the context
    purpose: Purpose = Purpose.TURN
    events: list[EventRow] = Field(default_factory=list)
    again: list[EventRow] = Field(default_factory=list)  # only in a later attempt


class RetryNote(Write):
    tenant: str
    session_id: str
    retry: ModelRetry
    events: list[EventRow] = Field(default_factory=list)


class NewNode(Node):
    """A message with the key of the call that wrote it. The last message of a call also holds the call's reply."""

    idem: str
    reply: Annotated[ModelReply | None, AsText] = None


class BudgetUse(Write):
    """The amounts to take from the tree's budget."""

    steps: int = 0
    tokens: int = 0
    cost_usd: float | None = None  # None: the price is not known
    tool_calls: int = 0


class OnceEvent(Write):
    """An event that a session emits at most once by this name."""

    name: str
    event: EventRow


class StepCommit(Write):
    tenant: str
    session_id: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
    idem: str
    version: int
    head: str
    line: str = "main"
    take: list[str] = Field(default_factory=list)
    usage: Usage  # the session's total, including this call
    used: BudgetUse = BudgetUse()
    progress: str | None = None
    status_text: str | None = None  # the status that the session publishes
    reply: Annotated[ModelReply, AsText]
    nodes: list[NewNode]
    once: list[OnceEvent] = Field(default_factory=list)
    events: list[EventRow] = Field(default_factory=list)
