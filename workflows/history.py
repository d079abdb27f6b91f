"""The time that a workflow task may take, and the length of a history that can be replayed in a part of that time."""

from datetime import timedelta

from temporalio import workflow

# Temporal waits this long for a worker that died during a workflow task. A worker that pauses for 4 s is still in time.
TASK_TIMEOUT = timedelta(seconds=5)


def is_long(renew_after: int | None) -> bool:
    """Whether to continue as new: after so many events, or sooner if the server suggests it."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or (
        renew_after is not None and info.get_current_history_length() >= renew_after
    )
