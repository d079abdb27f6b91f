"""The agents of the tests of limits, defined once."""

import pytest_asyncio

from tests.behaviour.conversations.talk import agent
from tests.support.stack import Stack

# short replies, so that a call reserves little of a shared budget
AGENTS = [
    agent("small", mode="subagent", max_tokens=300),
    agent("thrifty", "small", max_tokens=300),
    agent("fenced", permissions=[{"permission": "read_file", "pattern": "no*", "action": "deny"}]),
    agent("curious", may_ask=True),
]


@pytest_asyncio.fixture(scope="session")
async def bounded(stack: Stack) -> Stack:
    for definition in AGENTS:
        answer = await stack.http.put(f"/agents/{definition['name']}", json=definition)
        assert answer.is_success, answer.text
    return stack
