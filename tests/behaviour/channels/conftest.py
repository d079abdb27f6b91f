"""A chat service for each test, and the agents that answer its users."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.behaviour.channels.people import Service
from tests.behaviour.notifications.receivers import http_receiver
from tests.support.stack import Stack


@pytest_asyncio.fixture
async def service(stack: Stack) -> AsyncIterator[Service]:
    async with http_receiver() as receiver:
        service = await Service.connected(stack, receiver)
        yield service
        await service.close()
