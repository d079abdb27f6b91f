"""Bodies and responses of /conversations."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from api.http.body import check_input_length
from api.http.problems import finding
from api.schemas.agent_state import AgentState, Descriptor
from api.schemas.tasks import TaskRecord
from domain.conversations.display_messages import DisplayMessage
from domain.conversations.mailbox import DeliveryMode, MailboxMessage
from domain.conversations.subagent import RegistryEntry
from domain.errors import Invalid
from domain.json_object import JsonObject
from domain.policy.rules import Rule
from domain.sessions.acceptance import Criterion
from domain.sessions.input_request import InputRequest
from domain.sessions.session import Reason, Status
from domain.task import Boundary, Id, Line, Strict, Tags, TaskConfig, TaskContext, TaskSpec, Text, UserId
from settings import Settings
from store.conversation_reads import ThreadRow

TRANSPORTS = ("sse", "stream")
Transport = Literal["sse", "stream"]
AgentName = Annotated[str, StringConstraints(min_length=1, max_length=63)]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Metadata = Annotated[JsonObject, Field(max_length=100, description="your own keys; lists can be filtered by them")]
HowDelivered = Annotated[
    DeliveryMode | None,
    Field(
        strict=False, description="how outcomes of subagents are delivered; default: as each delegation tool does it"
    ),
]


class MessageBody(Strict):
    """The body of POST /conversations/{id}/messages: a further turn."""

    agent: AgentName | None = Field(default=None, description="default: the agent of the latest turn")
    input: Text | JsonObject | None = Field(default=None, description="required unless there are `answers`")
    answers: dict[Id, Any] | None = Field(
        default=None,
        max_length=200,
        description="answers to what the running session waits for, by request; omitted approvals are denied, "
        "omitted calls of external tools count as failed",
    )
    title: Title | None = None
    transport: Transport = Field(default="stream", description="sse: the response is the event stream itself")
    if_busy: Literal["reject", "queue", "steer"] = Field(
        default="queue", description="while a session is running: 409, wait until it ends, or pass the message to it"
    )
    acceptance_criteria: list[Criterion] = Field(default_factory=list, max_length=50)
    constraints: list[Line] = Field(default_factory=list, max_length=50)
    permissions: list[Rule] = Field(default_factory=list, max_length=200, description="ordered; the last match decides")
    boundary: Boundary | None = None
    context: TaskContext = TaskContext()
    config: TaskConfig = TaskConfig()
    tags: Tags = Field(default_factory=list, description="added to those of the thread")
    user_id: UserId | None = Field(default=None, description="the person that the thread belongs to; the first counts")
    delivery: HowDelivered = None
    metadata: Metadata | None = None

    def task(self, agent: str) -> TaskSpec:
        shared = {name: getattr(self, name) for name in TaskSpec.model_fields if name != "agent"}
        return TaskSpec.model_construct(agent=agent, **shared)


class RunBody(MessageBody):
    """The body of POST /conversations/run: a new conversation, a further turn of one, or a fork of a session."""

    conversation_id: Id | None = Field(default=None, description="continue this conversation")
    fork_from: Id | None = Field(default=None, description="start a new conversation where this session ended")
    transport: Transport = Field(
        default="sse", description="stream: 202 and a handle; attach to the events at any time"
    )
    if_busy: Literal["reject", "queue", "steer"] = Field(
        default="reject", description="while a session is running: 409, wait until it ends, or pass the message to it"
    )


class FireBody(Strict):
    """The body of POST /conversations/{id}/fire."""

    input: Text | JsonObject | None = Field(default=None, description="a message of yours, after the outcomes")
    agent: AgentName | None = None
    transport: Transport = "stream"
    if_busy: Literal["reject", "queue"] = "reject"


class ForkBody(Strict):
    """The body of POST /conversations/{id}/fork."""

    from_session: Id | None = Field(default=None, description="default: the latest session with a committed step")
    execute: bool = Field(default=False, description="false: only copy the state; a later message continues from it")
    agent: AgentName | None = None
    input: Text | JsonObject | None = Field(default=None, description="required to execute")
    title: Title | None = None
    transport: Transport = "stream"
    metadata: Metadata | None = None


class ConversationChange(Strict):
    """The body of PATCH /conversations/{id}; fields left out stay unchanged."""

    title: Title | None = None
    delivery: HowDelivered = None
    metadata: Metadata | None = Field(default=None, description="null removes a key")


def check_value(value: Any, settings: Settings) -> None:
    """Check parts of a raw body whose refusals have their own problem type: the input's length, the transport."""
    check_input_length(value, settings)
    transport = value.get("transport", "sse") if isinstance(value, dict) else "sse"
    if transport not in TRANSPORTS:
        problem = finding("/transport", "unknown_transport", "there is no such transport", TRANSPORTS)
        raise Invalid("There is no such transport.", type="unknown-transport", errors=[problem])


def check_message(body: MessageBody) -> None:
    """Check that a message has an input or answers; only an existing conversation can wait for answers."""
    if body.input is None and body.answers is None:
        raise Invalid(errors=[finding("/input", "missing", "this field is required")])
    if isinstance(body, RunBody) and body.answers is not None and (body.conversation_id is None or body.fork_from):
        problem = finding("/answers", "excluded", "only an existing conversation can wait for answers")
        raise Invalid("Nothing can wait for answers there.", errors=[problem])


def stream_key(session_id: str) -> str:
    """The path of a session's event stream."""
    return f"/tasks/{session_id}/events"


class Handle(BaseModel):
    session_id: str
    conversation_id: str
    stream_key: str = Field(description="path of its events, from the start or from any cursor")
    queued: bool = Field(default=False, description="it waits until the running session ends")
    steered: bool = Field(default=False, description="the message went to this session, which was already running")


def handle(session_id: str, conversation_id: str, **more: bool) -> Handle:
    return Handle(session_id=session_id, conversation_id=conversation_id, stream_key=stream_key(session_id), **more)


class ActiveSession(BaseModel):
    session_id: str
    stream_key: str
    transport: str


class ConversationSummary(BaseModel):
    conversation_id: str
    title: str
    status: str = Field(description="open or terminated")
    delivery: DeliveryMode | None
    metadata: JsonObject
    created_at: datetime
    updated_at: datetime
    pending_count: int = Field(description="outcomes that wait for a fire")
    match_source: list[str] | None = Field(default=None, description="where a search matched: title, input, output")


class ConversationPage(BaseModel):
    items: list[ConversationSummary]
    next_cursor: str | None


class SessionBranch(BaseModel):
    session_id: str
    thread_id: str
    parent_session_id: str | None = Field(description="the session before it, whose history it continues")
    spawned_by: str | None = Field(description="the session that started it as a subagent")
    session_type: str
    kind: str
    name: str | None
    agent: str
    handed_to: str | None = Field(description="the agent that has taken it over")
    title: str
    status: Status
    reason: Reason | None
    partial: bool
    live: bool
    transport: str
    created_at: datetime
    ended_at: datetime | None
    children: list["SessionBranch"] = Field(default_factory=list)


class ModelUsage(BaseModel):
    requests: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None


class MailboxState(BaseModel):
    pending_count: int


class ConversationRecord(BaseModel):
    conversation_id: str
    descriptor: Descriptor
    state: AgentState
    title: str
    status: str
    delivery: DeliveryMode | None
    metadata: JsonObject
    created_at: datetime
    updated_at: datetime
    latest_session: str | None = Field(description="newest session of the root thread")
    active_session: ActiveSession | None = Field(description="the running session of the root thread")
    live_sessions: list[str] = Field(description="all running sessions, subagents included")
    input_requests: list[InputRequest] = Field(description="open requests to people, subagents included")
    mailbox: MailboxState
    usage: dict[str, ModelUsage] = Field(description="by model")
    threads: list[ThreadRow]
    children: list[RegistryEntry] = Field(description="the registry: subagents that tools of its prompts have started")
    sessions: list[SessionBranch] = Field(description="as a tree: subagents below the session that started them")
    complete: bool = Field(description="false: there are more sessions or threads than shown")


class TurnRecord(BaseModel):
    session_id: str
    parent_session_id: str | None = Field(description="the session before it, whose history it continues")
    generation: int = Field(description="turns of one generation share a context; a reset begins the next")
    trigger: str
    agent: str
    status: Status
    reason: Reason | None
    partial: bool
    input: Any = Field(description="the input of the turn")
    output: str | None = Field(description="its final message")
    error: str | None
    created_at: datetime
    ended_at: datetime | None
    display_messages: list[DisplayMessage] | None = Field(default=None, description="with `full=true`")


class TurnPage(BaseModel):
    items: list[TurnRecord]
    next_cursor: str | None


class MailboxPage(BaseModel):
    items: list[MailboxMessage]
    pending_count: int
    next_cursor: str | None


class Interrupted(BaseModel):
    interrupted: int = Field(description="how many sessions were asked to stop, subagents included")
    session_ids: list[str]


class Terminated(BaseModel):
    conversation_id: str
    status: str
    stopped: int
    session_ids: list[str]


class ChildRecord(BaseModel):
    session_id: str
    name: str
    agent: str
    title: str
    status: Status
    live: bool
    created_at: datetime


class SessionRecord(TaskRecord):
    """A task with its place in the conversation."""

    session_id: str
    thread_id: str
    session_type: str
    kind: str = Field(description="sync_agent, async_agent, sync_subagent or async_subagent")
    transport: str
    trigger: str
    subagent_name: str | None
    delivery: DeliveryMode | None
    output: str | None
    outcome_message_id: str | None = Field(description="the mailbox message with its outcome")
    delivered_to: str | None = Field(description="the session that consumed its outcome; null: pending, or no outcome")
    children: list[ChildRecord]
    display_messages: list[DisplayMessage]


def kind_of(spawned_by: str | None, blocking: bool, transport: str) -> str:
    """One of four kinds, by who started the session and whether somebody waits for it."""
    if spawned_by is not None:
        return "sync_subagent" if blocking else "async_subagent"
    return "sync_agent" if transport == "sse" else "async_agent"
