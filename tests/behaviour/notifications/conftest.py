"""A receiver for each test, and the agents that ask."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.behaviour.notifications.receivers import Receiver, http_receiver
from tests.behaviour.notifications.subscribers import Told
from tests.behaviour.supervision.people import agent
from tests.support.stack import Stack


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with http_receiver() as running:
        yield running


@pytest_asyncio.fixture
async def told(stack: Stack) -> AsyncIterator[Told]:
    """The stack; whoever subscribes in a test is unsubscribed after it."""
    said = await stack.http.put("/agents/asker", json=agent("asker", may_ask=True))
    assert said.is_success, said.text
    told = Told(stack)
    yield told
    for subscription_id in told.made:
        await stack.http.delete(f"/subscriptions/{subscription_id}")
