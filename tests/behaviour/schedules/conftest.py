"""The agents that the schedule tests share with the conversation tests."""

import pytest_asyncio

from tests.behaviour.conversations.talk import AGENTS
from tests.support.stack import Stack


@pytest_asyncio.fixture(scope="session")
async def team(stack: Stack) -> Stack:
    for definition in AGENTS:
        answer = await stack.http.put(f"/agents/{definition['name']}", json=definition)
        assert answer.is_success, answer.text
    return stack
