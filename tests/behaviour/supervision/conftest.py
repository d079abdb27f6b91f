"""The agents of the supervision tests, defined once."""

import pytest_asyncio

from tests.behaviour.supervision.people import AGENTS
from tests.support.stack import Stack


@pytest_asyncio.fixture(scope="session")
async def people(stack: Stack) -> Stack:
    await stack.define(*AGENTS)
    return stack
