"""Responses of /tasks. The request body is domain.task.TaskSpec."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from domain.plan import Plan
from domain.sessions.input_request import DeferredTools
from domain.sessions.rerun import Rerun
from domain.sessions.session import Limits, Reason, Status, Usage
from store.sessions import SessionRow


class TaskAccepted(BaseModel):
    task_id: str
    status: Status
    created_at: datetime
    poll_interval: int = Field(description="milliseconds to wait between two requests for the status")
    conversation_id: str
    notices: list[str] = Field(
        default=[], description="what will not happen as asked, and why; left out if there is nothing to say"
    )


class TaskProgress(BaseModel):
    step: int = Field(description="the current step of the plan; without a plan, the number of steps taken so far")
    total_steps: int | None = Field(description="steps of the current plan; null without a plan")
    message: str


class TaskError(BaseModel):
    type: str
    message: str


class CancelRequest(BaseModel):
    by: str
    note: str
    grace_ms: int = Field(default=0, description="milliseconds that running tools have to finish; 0: none")
    at: datetime | None = None
    request_id: str | None = Field(default=None, description="the Idempotency-Key of the request")


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
    reason: Reason | None = Field(description="why the task ended; null until then")
    partial: bool
    error: TaskError | None
    title: str
    agent: str
    agent_version: int
    models: list[str] = Field(description="the model and its fallbacks, in order")
    conversation_id: str
    parent_session_id: str | None = Field(description="the session before it, whose history it continues")
    spawned_by: str | None = Field(description="the session that started it as a subagent")
    short_id: str | None = Field(default=None, description="in lists: the shortest unambiguous beginning of the id")
    created_at: datetime
    ended_at: datetime | None
    deadline: datetime
    limits: Limits
    usage: Usage
    plan: Plan | None
    retry: Retry | None = Field(description="set while a model call waits for its next attempt")
    cancel_requested: CancelRequest | None
    deferred_tools: DeferredTools | None = Field(
        default=None, description="tool calls and approvals that the task waits for; null if there are none"
    )
    dry_run: bool
    keep_until: datetime | None = Field(description="when its content will be removed; null until it ends")
    content_removed_at: datetime | None
    rerun_of: Rerun | None = Field(description="the task that this one repeats, if it is a rerun")
    poll_interval: int


class TaskPage(BaseModel):
    items: list[TaskRecord]
    next_cursor: str | None = Field(description="pass it to get the next page; null on the last one")


def task_record(
    session: SessionRow, poll_interval: int, deferred: DeferredTools | None = None, short_id: str | None = None
) -> TaskRecord:
    plan, cancel = session.plan, session.cancel_requested
    return TaskRecord(
        task_id=session.id,
        progress=TaskProgress(
            step=plan.current if plan else session.step,
            total_steps=len(plan.steps) if plan else None,
            message=session.progress,
        ),
        error=task_error(session),
        retry=Retry(**session.retry.model_dump()) if session.retry else None,
        cancel_requested=CancelRequest.model_validate(cancel, from_attributes=True) if cancel else None,
        deferred_tools=deferred,
        rerun_of=session.rerun,
        poll_interval=poll_interval,
        short_id=short_id,
        **{name: getattr(session, name) for name in _SAME},
    )


# fields whose form in the row differs
_OTHER = {"progress", "error", "retry", "cancel_requested"}
_SAME = (TaskRecord.model_fields.keys() & SessionRow.model_fields.keys()) - _OTHER


def task_error(session: SessionRow) -> TaskError | None:
    if session.error is None and session.error_type is None:
        return None
    return TaskError(type=session.error_type or "error", message=session.error or "")
