"""kill -9 of the worker while it writes a question, or the end of one."""

import pytest

from tests.behaviour.supervision.people import agent, ask, output, waiting
from tests.support.locks import locked, waiting_for
from tests.support.stack import Stack, calls, eventually, of_type

pytestmark = pytest.mark.asyncio
TABLE = "input_requests"
DEFAULT = "Either of them."
QUESTION = calls(ask("Which?", default=DEFAULT))


@pytest.mark.exactly_once
@pytest.mark.parametrize("written", [True, False], ids=["written-later", "never-written"])
async def test_a_question_is_asked_and_settled_once(stack: Stack, written: bool) -> None:
    """What a dead worker sent to the database may still be written, or not."""
    (await stack.http.put("/agents/asker", json=agent("asker", may_ask=True))).raise_for_status()
    async with locked(stack.pool, TABLE):
        config = {"input_timeout": 15_000, "on_input_timeout": "default"}
        task_id = await stack.submit(QUESTION, "asker", config=config)
        killed = await _killed(stack, written)
    await stack.back("worker", killed)
    await waiting(stack, task_id)
    async with locked(stack.pool, TABLE):
        killed = await _killed(stack, written)
    await stack.back("worker", killed)
    assert (await stack.wait(task_id))["status"] == "completed"
    assert f"the default: {DEFAULT}" in await output(stack, task_id)
    events = await stack.events(task_id)
    assert (len(of_type(events, "input_required")), len(of_type(events, "input_expired"))) == (1, 1)
    assert len(of_type(events, "step_started")) == 2


async def _killed(stack: Stack, written: bool) -> int:
    """Kill the worker once it waits for the table."""
    await eventually(lambda: waiting_for(stack.pool, TABLE), pause=0.02, what="the worker waits for the table")
    killed = await stack.kill("worker")
    if not written:
        await stack.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted", TABLE
        )
    return killed
