"""The agents of the supervision tests, defined once."""

import pytest_asyncio

from tests.behaviour.supervision.people import AGENTS
from tests.support.stack import Stack


@pytest_asyncio.fixture(scope="session")
async def people(stack: Stack) -> Stack:
    for definition in AGENTS:
        said = await stack.http.put(f"/agents/{definition['name']}", json=definition)
        assert said.is_success, said.text
    return stack
