"""What the store writes about a model call: its beginning, its retries, its reply. The fields are those that the SQL
functions `begin_step`, `note_retry` and `commit_step` read; only the store dumps these models."""

from pydantic import Field

from domain.events import EventRow, ModelRetry
from domain.messages import Node
from domain.sessions.session import Usage
from domain.sessions.session_writes import Write
from domain.sessions.step import Purpose


class StepBegin(Write):
    tenant: str
    session_id: str
    run: str | None = None  # of the session's workflow that writes it; None: somebody else does
    idem: str  # the same for all attempts of a call
    version: int
    step: int
    attempt: int
    head: str | None = None
    take: list[str] = Field(default_factory=list)  # messages that enter the context
    purpose: Purpose = Purpose.TURN
    events: list[EventRow] = Field(default_factory=list)
    again: list[EventRow] = Field(default_factory=list)  # only of a later attempt


class RetryNote(Write):
    tenant: str
    session_id: str
    retry: ModelRetry
    events: list[EventRow] = Field(default_factory=list)


class NewNode(Node):
    """A message with the key of the call that wrote it; the last one of a call has the call's reply."""

    idem: str
    reply: str | None = None  # JSON


class BudgetUse(Write):
    """What is taken from the tree's budget."""

    steps: int = 0
    tokens: int = 0
    cost_usd: float | None = None  # None: the price is not known
    tool_calls: int = 0


class OnceEvent(Write):
    """An event of which a session has at most one by this name."""

    name: str
    event: EventRow


class StepCommit(Write):
    tenant: str
    session_id: str
    run: str | None = None  # of the session's workflow that writes it; None: somebody else does
    idem: str
    version: int
    head: str
    line: str = "main"
    take: list[str] = Field(default_factory=list)
    usage: Usage  # of the session, with this call
    used: BudgetUse = BudgetUse()
    progress: str | None = None
    status_text: str | None = None  # what the session publishes as its status
    reply: str  # JSON
    nodes: list[NewNode]
    once: list[OnceEvent] = Field(default_factory=list)
    events: list[EventRow] = Field(default_factory=list)
