"""What the doors of conversations answer."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from api.schemas.tasks import TaskRecord
from domain.conversations.mailbox import DeliveryMode, MailboxMessage
from domain.sessions.input_request import InputRequest
from domain.sessions.session import Reason, Status
from store.conversation_reads import ThreadRow


def stream_key(session_id: str) -> str:
    """Where a session's events are to be had, from the first one on."""
    return f"/tasks/{session_id}/events"


class Handle(BaseModel):
    session_id: str
    conversation_id: str
    stream_key: str = Field(description="attach here: its events, from the start or from any cursor")
    queued: bool = Field(default=False, description="it waits for the session at work")
    steered: bool = Field(default=False, description="the words went to this session, which was at work already")


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
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    pending_count: int = Field(description="outcomes that wait for a fire")
    match_source: list[str] | None = Field(default=None, description="of a search: title, input, output")


class ConversationPage(BaseModel):
    items: list[ConversationSummary]
    next_cursor: str | None


class SessionBranch(BaseModel):
    session_id: str
    thread_id: str
    parent_session_id: str | None = Field(description="whose history it continues")
    spawned_by: str | None = Field(description="the session that started it as a subagent")
    session_type: str
    kind: str
    name: str | None
    agent: str
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
    title: str
    status: str
    delivery: DeliveryMode | None
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    latest_session: str | None = Field(description="of the root thread")
    active_session: ActiveSession | None = Field(description="at work on the root thread")
    live_sessions: list[str] = Field(description="all that are at work, subagents too")
    input_requests: list[InputRequest] = Field(description="what waits for people, of subagents too")
    mailbox: MailboxState
    usage: dict[str, ModelUsage] = Field(description="by model")
    threads: list[ThreadRow]
    sessions: list[SessionBranch] = Field(description="as a tree: subagents under whom they were started by")
    complete: bool = Field(description="false: only the newest sessions and first threads are shown")


class TurnRecord(BaseModel):
    session_id: str
    parent_session_id: str | None
    trigger: str
    agent: str
    status: Status
    reason: Reason | None
    partial: bool
    input: Any = Field(description="what was said to the agent")
    output: str | None = Field(description="its final message")
    error: str | None
    created_at: datetime
    ended_at: datetime | None
    display_messages: list[dict[str, Any]] | None = Field(default=None, description="with `full=true`")


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
    """A task with all that its conversation knows of it."""

    session_id: str
    thread_id: str
    session_type: str
    kind: str = Field(description="sync_agent, async_agent, sync_subagent or async_subagent")
    transport: str
    trigger: str
    spawned_by: str | None
    subagent_name: str | None
    delivery: DeliveryMode | None
    output: str | None
    outcome_message_id: str | None = Field(description="the mailbox message that brings its outcome")
    delivered_to: str | None = Field(description="the session that consumed its outcome; null: pending, or none")
    children: list[ChildRecord]
    display_messages: list[dict[str, Any]]


def kind_of(spawned_by: str | None, blocking: bool, transport: str) -> str:
    """The four kinds: who waits for it, and who started it."""
    if spawned_by is not None:
        return "sync_subagent" if blocking else "async_subagent"
    return "sync_agent" if transport == "sse" else "async_agent"
