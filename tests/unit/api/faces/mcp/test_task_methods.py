"""tasks/cancel of the version 2025-11-25 answers `cancelled` only for a task that is, or soon will be."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.faces.mcp import server
from domain.errors import Invalid
from domain.sessions.session import Status


@pytest.mark.parametrize(
    ("before", "after", "answered"),
    [
        (Status.WORKING, Status.CANCELLED, True),
        (Status.INPUT_REQUIRED, Status.CANCELLED, True),
        (Status.WORKING, Status.WORKING, True),  # it has the cancel and will stop
        (Status.WORKING, Status.COMPLETED, False),  # its end came first
        (Status.WORKING, Status.FAILED, False),
        *((ended, ended, False) for ended in Status if ended.terminal),
    ],
)
async def test_a_task_that_ended_otherwise_is_not_called_cancelled(
    monkeypatch: pytest.MonkeyPatch, before: Status, after: Status, answered: bool
) -> None:
    cancelled: list[str] = []

    async def session_of(call: Any, task_id: str) -> Any:
        return SimpleNamespace(id=task_id, status=before)

    async def cancel(call: Any, params: server.TaskParams) -> None:
        cancelled.append(params.task_id)

    async def await_ending(call: Any, session: Any, seconds: float) -> Any:
        return SimpleNamespace(id=session.id, status=after)

    async def read_session(call: Any, session: Any) -> Any:
        return session

    for stand_in in (session_of, cancel, await_ending, read_session):
        monkeypatch.setattr(server, stand_in.__name__, stand_in)
    asked = server.cancel_running(cast(Any, None), server.TaskParams(task_id="t"))
    if answered:
        assert (await asked).status is after
    else:
        with pytest.raises(Invalid, match=f"ended already: {after}"):
            await asked
    assert bool(cancelled) is not before.terminal
