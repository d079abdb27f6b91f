"""The agents of the supervision tests, defined once."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.behaviour.supervision.people import AGENTS, ask, plan, waiting
from tests.support.stack import Stack, calls, steps


@pytest_asyncio.fixture(scope="session")
async def people(stack: Stack) -> Stack:
    for definition in AGENTS:
        said = await stack.http.put(f"/agents/{definition['name']}", json=definition)
        assert said.is_success, said.text
    return stack


@pytest_asyncio.fixture(scope="module")
async def asked(people: Stack) -> AsyncIterator[tuple[Stack, str, str]]:
    """A task that waits for a port number: the stack, the task and the request."""
    schema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
    task_id = await people.submit(calls(ask("Which port?", answer_schema=schema)), "asker")
    [request] = await waiting(people, task_id)
    yield people, task_id, request["id"]
    await people.cancel(task_id)


@pytest_asyncio.fixture(scope="module")
async def planned(people: Stack) -> AsyncIterator[tuple[Stack, str, str]]:
    """A task that waits for its plan to be approved."""
    task_id = await people.submit(steps([plan("look")]), config={"approval_required": True})
    [request] = await waiting(people, task_id)
    yield people, task_id, request["id"]
    await people.cancel(task_id)
