"""The API's responses, with the fields that programs use. Fields that a newer server adds are kept as attributes."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Status = Literal["submitted", "working", "input_required", "completed", "failed", "cancelled"]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class TaskHandle(Model):
    """An accepted task."""

    task_id: str
    conversation_id: str
    status: Status
    created_at: datetime
    notices: list[str] = Field(default_factory=list)  # what will not happen as asked, and why


class SessionHandle(Model):
    """An accepted turn of a conversation; `session_id` is the id of its task."""

    session_id: str
    conversation_id: str
    queued: bool = False
    steered: bool = False

    @property
    def task_id(self) -> str:
        return self.session_id


class Progress(Model):
    step: int
    total_steps: int | None
    message: str


class TaskError(Model):
    type: str
    message: str


class Usage(Model):
    llm_calls: int
    tool_invocations: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: float | None  # None: a model has no price


class ResultUsage(Usage):
    duration_ms: int
    tokens_consumed: int


class Task(Model):
    """The record of a task."""

    task_id: str
    conversation_id: str
    agent: str
    title: str
    status: Status
    reason: str | None
    partial: bool
    error: TaskError | None
    progress: Progress
    usage: Usage
    parent_session_id: str | None  # the session before it, whose history it continues
    spawned_by: str | None  # the session that started it as a subagent
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    ended_at: datetime | None
    deadline: datetime

    @property
    def ended(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")


class Artifact(Model):
    type: str
    name: str
    url: str
    size: int
    media_type: str
    file_id: str
    content: str | None = None  # its text, if it is small


class Verdict(Model):
    criterion: str
    passed: bool
    why: str


class Effect(Model):
    kind: str
    tool: str
    state: str
    description: str


class Result(Model):
    """The end of a task and its results."""

    task_id: str
    status: Status
    reason: str | None
    partial: bool
    output: Any
    error: TaskError | None
    acceptance: list[Verdict] | None
    artifacts: list[Artifact]
    effects: list[Effect]
    usage: ResultUsage
    audit_log: list[dict[str, Any]]

    @property
    def completed(self) -> bool:
        return self.status == "completed"


class InputRequest(Model):
    """An input request: a question, an approval, the result of a tool of yours, variables."""

    id: str
    session_id: str
    conversation_id: str
    kind: str
    question: str
    details: dict[str, Any]
    answer_schema: dict[str, Any] | None
    status: str
    answer: Any
    deadline: datetime
    created_at: datetime


class File(Model):
    file_id: str
    name: str
    size: int
    sha256: str
    media_type: str
    created_at: datetime
