"""A task as callers read it: the records of tasks, made from their rows, and the artifacts of a result."""

from collections.abc import Mapping, Sequence

from errand import models

from api.http.auth import Call
from domain.sessions.input_request import DEFERRED, RequestKind
from domain.sessions.session import Status
from store import input_requests, tool_calls
from store.files import File
from store.sessions import SessionRow

MOST_INLINE = 8_192  # bytes
# fields whose form in the row differs
_SAME = (models.Task.model_fields.keys() & SessionRow.model_fields.keys()) - {"progress", "error"}


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


async def task_records(
    call: Call, listed: Sequence[SessionRow], short_ids: Mapping[str, str] | None = None
) -> list[models.Task]:
    """The records of tasks. The request body is domain.task.TaskSpec."""
    rows = await tool_calls.count_calls(call.pool, call.tenant, listed)
    deferred = await _find_deferred(call, rows)
    return [_record(call, row, deferred.get(row.id), short_ids.get(row.id) if short_ids else None) for row in rows]


async def _find_deferred(call: Call, listed: Sequence[SessionRow]) -> dict[str, models.DeferredTools]:
    """The tool results and approvals for which sessions wait, by session."""
    waiting = [session.id for session in listed if session.status is Status.INPUT_REQUIRED]
    found: dict[str, models.DeferredTools] = {}
    for request in await input_requests.of_sessions(call.pool, call.tenant, waiting) if waiting else []:
        if request.kind not in DEFERRED:
            continue
        tools = found.setdefault(request.session_id, models.DeferredTools(calls=[], approvals=[]))
        named = models.DeferredCall(
            request_id=request.id,
            deadline=request.deadline,
            tool=request.details["tool"],
            arguments=request.details["arguments"],
        )
        (tools.calls if request.kind is RequestKind.EXTERNAL_RESULT else tools.approvals).append(named)
    return found


def _record(
    call: Call, session: SessionRow, deferred: models.DeferredTools | None, short_id: str | None
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
            "queued": session.queued,
            "rerun_of": session.rerun,
            "poll_interval": call.settings.poll_interval_ms,
            "short_id": short_id,
        }
    )


def task_error(session: SessionRow) -> models.TaskError | None:
    if session.error is None and session.error_type is None:
        return None
    return models.TaskError(type=session.error_type or "error", message=session.error or "")
