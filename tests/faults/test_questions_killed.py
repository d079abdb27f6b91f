"""kill -9 of the worker while it writes two questions, or the ends of both."""

import pytest

from tests.behaviour.supervision.people import agent, ask, output, waiting
from tests.support.locks import locked
from tests.support.stack import Stack, calls, eventually, of_type

TABLE = "input_requests"
DEFAULT = "Either of them."
QUESTION = calls(ask("Which?", default=DEFAULT))


@pytest.mark.exactly_once
async def test_questions_are_asked_and_settled_once(stack: Stack) -> None:
    """What a dead worker sent to the database for one of them is still written; what it sent for the other is not."""
    (await stack.http.put("/agents/asker", json=agent("asker", may_ask=True))).raise_for_status()
    async with locked(stack.pool, TABLE):
        config = {"input_timeout": 15_000, "on_input_timeout": "default"}
        tasks = [await stack.submit(QUESTION, "asker", config=config) for _ in range(2)]
        killed = await _killed(stack)
    await stack.back("worker", killed)
    for task_id in tasks:
        await waiting(stack, task_id)
    async with locked(stack.pool, TABLE):
        killed = await _killed(stack)
    await stack.back("worker", killed)
    for task_id in tasks:
        assert (await stack.wait(task_id))["status"] == "completed"
        assert f"the default: {DEFAULT}" in await output(stack, task_id)
        events = await stack.events(task_id)
        assert (len(of_type(events, "input_required")), len(of_type(events, "input_expired"))) == (1, 1)
        assert len(of_type(events, "step_started")) == 2


async def _killed(stack: Stack) -> int:
    """Kill the worker once both tasks wait for the table; one of the two statements is lost with it."""

    async def both() -> list[int] | None:
        query = "SELECT DISTINCT pid FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted ORDER BY pid"
        found = [row["pid"] for row in await stack.pool.fetch(query, TABLE)]
        return found if len(found) >= 2 else None

    one, *_ = await eventually(both, pause=0.02, what="the worker waits for the table twice")
    killed = await stack.kill("worker")
    await stack.pool.execute("SELECT pg_terminate_backend($1)", one)
    return killed
