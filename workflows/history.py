"""The length of a workflow's history, which must be replayed within the timeout of a workflow task."""

from temporalio import workflow


def is_long(renew_after: int | None) -> bool:
    """Whether to continue as new: after so many events, or sooner if the server suggests it."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or (
        renew_after is not None and info.get_current_history_length() >= renew_after
    )
