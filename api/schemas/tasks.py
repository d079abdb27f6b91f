"""The record of a task, made from its row. The request body is domain.task.TaskSpec."""

from errand import models

from domain.sessions.input_request import DeferredTools
from store.sessions import SessionRow


def task_record(
    session: SessionRow, poll_interval: int, deferred: DeferredTools | None = None, short_id: str | None = None
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


# fields whose form in the row differs
_SAME = (models.Task.model_fields.keys() & SessionRow.model_fields.keys()) - {"progress", "error"}


def task_error(session: SessionRow) -> models.TaskError | None:
    if session.error is None and session.error_type is None:
        return None
    return models.TaskError(type=session.error_type or "error", message=session.error or "")
