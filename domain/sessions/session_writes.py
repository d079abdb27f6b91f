"""Writes of the store when a session begins and when it ends. The SQL functions `accept_session`, `begin_queued` and
`finish_session` read exactly these fields; only the store dumps these models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field
from pydantic_core import to_json

from domain.conversations.inbox import InboxKind
from domain.events import EventRow
from domain.faces import FaceRequest
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.messages import Node
from domain.sessions.new_session import PlacedSession
from domain.sessions.session import DeliveryMode, Reason, SessionRef, Status, Usage

ENDED_FIRST = "The session ended first."
LOW_PERCENT = 20  # of a budget left when an event says so; the default of the setting too

# A document in a column of type text. PostgreSQL's jsonb would refuse what texts of models may contain (\u0000).
AsText = PlainSerializer(lambda value: None if value is None else to_json(value).decode())


class Write(BaseModel):
    model_config = ConfigDict(frozen=True)


class IdempotencyRecord(Write):
    key: str
    digest: str
    status: int
    response: str


class NewMessage(Write):
    """A message of the inbox that opens a session."""

    id: str
    kind: InboxKind = InboxKind.USER
    author: str = ""
    parts: str  # JSON
    visible: bool = True


class ThreadMessage(Write):
    """A message for the inbox of a thread that exists."""

    id: str
    conversation_id: str
    thread_id: str
    text: str
    kind: InboxKind = InboxKind.USER
    author: str = ""
    taken_by: str | None = None  # the session that is about to read it
    unsignalled: bool = False  # the sweeper signals its conversation if its writer does not
    visible: bool = True
    wake: bool = True  # false: it stays for the next session that answers


class NewBudget(Write):
    """The most that all sessions of a conversation may use together. None: no such limit."""

    deadline: datetime | None = None
    max_steps: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_tool_calls: int | None = None
    max_sessions: int | None = None
    low_percent: int = LOW_PERCENT
    default: bool = False  # the platform's ceilings: a conversation that has a budget keeps it

    def within(self, other: "NewBudget | None") -> "NewBudget":
        """The lower of each limit; ceilings of the platform do not count."""
        if other is None or other.default:
            return self
        own, others = self.model_dump(), other.model_dump()
        limits = {
            name: min(one for one in (own[name], others[name]) if one is not None)
            for name in own
            if name not in ("default", "low_percent") and not (own[name] is None and others[name] is None)
        }
        return NewBudget(**limits, low_percent=other.low_percent)


class Acceptance(Write):
    """A session to be accepted, with everything that is written in the same transaction."""

    session: PlacedSession
    inbox: list[NewMessage] = Field(default_factory=list)
    events: list[EventRow] = Field(default_factory=list)
    idempotency: IdempotencyRecord | None = None
    live_quota: int | None = None  # how many live tasks the creator may have
    take: list[str] = Field(default_factory=list)  # inbox messages that exist already
    mail: list[str] = Field(default_factory=list)  # mailbox messages that it claims, all of them or none
    queue: bool = False  # it waits until its thread has no live session
    in_order: bool = False  # it does not overtake a session that waits in the queue
    spawns: bool = False  # its spawner must be live, and no tree above it cancelled
    deferred: bool = False  # its spawner may have ended
    budget: NewBudget | None = None  # of the whole conversation, if the task brings one
    delivery: DeliveryMode | None = None  # the new conversation's
    metadata: JsonObject = Field(default_factory=dict)  # the new conversation's
    manifest: Mapping[str, Any] = Field(default_factory=dict)  # what a new workspace starts with, by path
    parent_thread_id: str | None = None
    thread_name: str | None = None
    face: FaceRequest | None = None  # set if the request came through a face


class QueuedBegin(Write):
    """A session leaves the queue of its thread."""

    tenant: str
    session_id: str
    take: list[str]  # inbox messages that it reads first


class SessionEnding(Write):
    """The end of a session. A field that is None leaves the column as it is."""

    ref: SessionRef
    run: str | None = None  # the run of the session's workflow that ends it; None: another writer
    reason: Reason
    partial: bool = False
    error_type: str | None = None
    error: str | None = None
    output: str | None = None
    typed: bool = False  # the output is JSON that fits the agent's output schema
    replied: bool = False  # the model answered, if only with tool calls
    open_result: str = ENDED_FIRST  # of the tool calls that are still open
    head: str | None = None
    usage: Usage | None = None
    step: int | None = None
    version: int
    seen: int | None = None  # the version of the row that this was computed from; None: of whatever it is
    nodes: list[Node] = Field(default_factory=list)  # results for tool calls that have none
    events: list[EventRow] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Status:
        return self.reason.status

    @computed_field  # type: ignore[prop-decorator]
    @property
    def message_id(self) -> str:
        """The id of the outcome in the spawner's mailbox. A repetition writes the same one."""
        return derive_id(self.ref.session_id, "outcome")
