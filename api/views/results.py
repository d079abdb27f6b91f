"""The result of a task: its output, its effects, and the sources it is based on."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from api.schemas.events import ShownEvent
from api.schemas.tasks import TaskError, task_error
from domain.sessions.acceptance import CriterionVerdict
from domain.sessions.effects import EffectRecord, Source
from domain.sessions.session import Reason, Status
from store.effects import Ledger
from store.files import File
from store.sessions import SessionRow

MOST_INLINE = 8_192  # bytes


class ArtifactRecord(BaseModel):
    type: str
    name: str
    url: str = Field(description="where it is: a path of this API, or an address elsewhere")
    size: int
    media_type: str
    file_id: str
    content: str | None = Field(default=None, description="its text, if it is a text of at most 8 KiB; else null")


class ResultUsage(BaseModel):
    duration_ms: int
    llm_calls: int
    tool_invocations: int
    tokens_consumed: int
    cost_usd: float | None = Field(description="null: unknown, because a model has no price")
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class BasedOn(BaseModel):
    """The sources of a result, and when each was read, so that a reader can judge whether the result is outdated."""

    agent: str
    agent_version: int
    models: list[str] = Field(description="the models that responded")
    sources: list[Source]


class TaskResult(BaseModel):
    task_id: str
    status: Status
    reason: Reason | None
    partial: bool
    output: Any = Field(description="text; JSON if the agent has an output schema and the task completed")
    error: TaskError | None
    acceptance: list[CriterionVerdict] | None = Field(
        default=None, description="the newest verdict on each criterion; null: no check was made"
    )
    artifacts: list[ArtifactRecord]
    effects: list[EffectRecord] = Field(description="what the task did; in a dry run, what it would have done")
    effects_complete: bool = Field(description="false: there are more effects")
    based_on: BasedOn
    audit_log: list[ShownEvent] = Field(description="what was decided and done; all events with `?audit_log=full`")
    audit_log_complete: bool = Field(description="false: the log is longer; GET …/events has all events")
    usage: ResultUsage


def task_result(
    session: SessionRow,
    files: list[File],
    contents: Mapping[str, bytes],
    ledger: Ledger,
    based_on: BasedOn,
    audit: list[ShownEvent],
    complete: bool,
) -> TaskResult:
    usage, began = session.usage, session.started_at or session.created_at
    taken = (session.ended_at or session.updated_at) - began
    return TaskResult(
        task_id=session.id,
        status=session.status,
        reason=session.reason,
        partial=session.partial,
        output=json.loads(session.output) if session.typed and session.output else session.output,
        error=task_error(session),
        artifacts=[artifact(file, contents.get(file.sha256)) for file in files],
        effects=ledger.items,
        effects_complete=ledger.complete,
        based_on=based_on,
        audit_log=audit,
        audit_log_complete=complete,
        usage=ResultUsage(
            duration_ms=max(0, round(taken.total_seconds() * 1_000)),
            tokens_consumed=usage.tokens,
            **usage.model_dump(),
        ),
    )


def is_inline(file: File) -> bool:
    """Whether the result carries the content itself. An address is not a content."""
    return file.url is None and file.size <= MOST_INLINE


def artifact(file: File, content: bytes | None) -> ArtifactRecord:
    try:
        text = content.decode() if content is not None and b"\0" not in content else None
    except UnicodeDecodeError:
        text = None
    return ArtifactRecord(
        type=file.type,
        name=file.name,
        url=file.url or f"/files/{file.id}",
        size=file.size,
        media_type=file.media_type,
        file_id=file.id,
        content=text if is_inline(file) else None,
    )
