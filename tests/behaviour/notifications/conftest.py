"""A receiver for each test, and the agents that ask questions."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.behaviour.notifications.receivers import Receiver, http_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.supervision.people import agent
from tests.support.stack import Stack


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with http_receiver() as running:
        yield running


@pytest_asyncio.fixture
async def subscribers(stack: Stack) -> AsyncIterator[Subscribers]:
    """The stack; the subscriptions of a test are removed after it."""
    said = await stack.http.put("/agents/asker", json=agent("asker", may_ask=True))
    assert said.is_success, said.text
    subscribers = Subscribers(stack)
    yield subscribers
    for subscription_id in subscribers.made:
        await stack.http.delete(f"/subscriptions/{subscription_id}")
