"""The result of a task: its output, its effects, and the sources it is based on."""

import json
from collections.abc import Mapping

from errand import models

from store.files import File
from store.sessions import SessionRow

MOST_INLINE = 8_192  # bytes
# fields whose form in the row differs
_SAME = (models.Task.model_fields.keys() & SessionRow.model_fields.keys()) - {"progress", "error"}


def task_result(
    session: SessionRow,
    files: list[File],
    contents: Mapping[str, bytes],
    ledger: models.EffectPage,
    based_on: models.BasedOn,
    audit: list[models.Event],
    complete: bool,
    verdicts: list[models.Verdict] | None,
) -> models.Result:
    usage, began = session.usage, session.started_at or session.created_at
    taken = (session.ended_at or session.updated_at) - began
    spent = models.ResultUsage(
        duration_ms=max(0, round(taken.total_seconds() * 1_000)), tokens_consumed=usage.tokens, **usage.model_dump()
    )
    return models.Result(
        task_id=session.id,
        status=session.status.value,
        reason=session.reason,
        partial=session.partial,
        output=json.loads(session.output) if session.typed and session.output else session.output,
        error=task_error(session),
        acceptance=verdicts,
        artifacts=[artifact(file, contents.get(file.sha256)) for file in files],
        effects=ledger.items,
        effects_complete=ledger.complete,
        based_on=based_on,
        audit_log=audit,
        audit_log_complete=complete,
        usage=spent,
    )


def is_inline(file: File) -> bool:
    """Whether the result carries the content itself. An address is not a content."""
    return file.url is None and file.size <= MOST_INLINE


def artifact(file: File, content: bytes | None) -> models.Artifact:
    try:
        text = content.decode() if content is not None and b"\0" not in content else None
    except UnicodeDecodeError:
        text = None
    return models.Artifact(
        type=file.type,
        name=file.name,
        url=file.url or f"/files/{file.id}",
        size=file.size,
        media_type=file.media_type,
        file_id=file.id,
        description=file.description,
        content=text if is_inline(file) else None,
    )


# The record of a task, made from its row. The request body is domain.task.TaskSpec.


def task_record(
    session: SessionRow, poll_interval: int, deferred: models.DeferredTools | None = None, short_id: str | None = None
) -> models.Task:
    plan = session.plan
    return models.Task.model_validate(
        {name: getattr(session, name) for name in _SAME}
        | {
            "task_id": session.id,
            "progress": models.Progress(
                step=plan.current if plan else session.step,
                total_steps=len(plan.steps) if plan else None,
                message=session.progress,
            ),
            "error": task_error(session),
            "deferred_tools": deferred,
            "rerun_of": session.rerun,
            "poll_interval": poll_interval,
            "short_id": short_id,
        }
    )


def task_error(session: SessionRow) -> models.TaskError | None:
    if session.error is None and session.error_type is None:
        return None
    return models.TaskError(type=session.error_type or "error", message=session.error or "")
