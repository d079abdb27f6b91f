"""What the API answers; the request body of a task is domain.task.TaskSpec."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from domain.agents.definition import AgentDefinition
from domain.plan import Plan
from domain.sessions.input_request import DeferredTools
from domain.sessions.rerun import Rerun
from domain.sessions.session import AgentRef, Limits, Reason, Status, Usage
from store.files import File
from store.sessions import SessionRow


class Finding(BaseModel):
    """Where a request is wrong; the value itself is never repeated."""

    model_config = ConfigDict(extra="allow")

    pointer: str = Field(description="JSON pointer into the body, or the name of a parameter")
    code: str
    message: str
    allowed: list[Any] | None = None


class Problem(BaseModel):
    """An RFC 9457 problem."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:errand:problem:validation"])
    title: str
    status: int
    detail: str
    instance: str = Field(description="the id of the request, as in X-Request-Id")
    errors: list[Finding] | None = None


class TaskAccepted(BaseModel):
    task_id: str
    status: Status
    created_at: datetime
    poll_interval: int = Field(description="milliseconds between two looks that make sense")
    conversation_id: str


class TaskProgress(BaseModel):
    step: int = Field(description="of the current plan; without a plan, the steps taken so far")
    total_steps: int | None = Field(description="steps of the current plan; null without one")
    message: str


class TaskError(BaseModel):
    type: str
    message: str


class CancelRequest(BaseModel):
    by: str
    note: str
    grace_ms: int = Field(default=0, description="so long the tools that run may take to finish; 0: none")
    at: datetime | None = None
    request_id: str | None = Field(default=None, description="the Idempotency-Key it came with")


class Retry(BaseModel):
    model_config = ConfigDict(extra="allow")

    attempt: int
    reason: str
    next_at: datetime


class TaskRecord(BaseModel):
    task_id: str
    status: Status
    progress: TaskProgress
    started_at: datetime | None
    updated_at: datetime
    reason: Reason | None = Field(description="why it ended; null before")
    partial: bool
    error: TaskError | None
    title: str
    agent: str
    agent_version: int
    models: list[str] = Field(description="the model, then its fallbacks")
    conversation_id: str
    parent_session_id: str | None
    created_at: datetime
    ended_at: datetime | None
    deadline: datetime
    limits: Limits
    usage: Usage
    plan: Plan | None
    retry: Retry | None = Field(description="while a model call is backing off")
    cancel_requested: CancelRequest | None
    deferred_tools: DeferredTools | None = Field(default=None, description="calls it waits for; null if there are none")
    dry_run: bool
    keep_until: datetime | None = Field(description="when its content will be removed; null before its end")
    content_removed_at: datetime | None
    rerun_of: Rerun | None = Field(description="the task that this one repeats, if it is a rerun")
    poll_interval: int


class TaskPage(BaseModel):
    items: list[TaskRecord]
    next_cursor: str | None = Field(description="for the next page; null on the last")


class EventPage(BaseModel):
    items: list[dict[str, Any]]
    next_after: int = Field(description="give it as `after` to go on")
    closed: bool = Field(description="the terminal event has been written; nothing follows")


class AgentRecord(AgentDefinition):
    version: int
    shipped: bool = Field(description="it came as a file; false: a tenant's own")


class AgentPage(BaseModel):
    items: list[AgentRecord]


class FileRecord(BaseModel):
    file_id: str
    name: str
    size: int
    sha256: str
    media_type: str
    url: str
    created_at: datetime


def task_record(session: SessionRow, poll_interval: int, deferred: DeferredTools | None = None) -> TaskRecord:
    plan, cancel = session.plan, session.cancel_requested
    return TaskRecord(
        task_id=session.id,
        progress=TaskProgress(
            step=plan.current if plan else session.step,
            total_steps=len(plan.steps) if plan else None,
            message=session.progress,
        ),
        error=task_error(session),
        retry=Retry(**session.retry) if session.retry else None,
        cancel_requested=CancelRequest(**cancel) if cancel else None,
        deferred_tools=deferred,
        rerun_of=session.rerun,
        poll_interval=poll_interval,
        **{name: getattr(session, name) for name in _SAME},
    )


_SAME = (
    *("status", "started_at", "updated_at", "reason", "partial", "title", "agent", "agent_version", "models"),
    *("conversation_id", "parent_session_id", "created_at", "ended_at", "deadline", "limits", "usage", "plan"),
    *("dry_run", "keep_until", "content_removed_at"),
)


def task_error(session: SessionRow) -> TaskError | None:
    if session.error is None and session.error_type is None:
        return None
    return TaskError(type=session.error_type or "error", message=session.error or "")


def file_record(file: File) -> FileRecord:
    return FileRecord(
        file_id=file.id,
        name=file.name,
        size=file.size,
        sha256=file.sha256,
        media_type=file.media_type,
        url=f"/files/{file.id}",
        created_at=file.created_at,
    )


def agent_record(ref: AgentRef, definition: AgentDefinition) -> AgentRecord:
    return AgentRecord(**definition.model_dump(), version=ref.version, shipped=ref.owner == "*")
