"""Fixtures of all tests: one real stack for the whole run, started when the first test asks for it."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.launch import embedded
from tests.stack import Stack

pytest_plugins = ["tests.proves"]


@pytest_asyncio.fixture(scope="session")
async def stack() -> AsyncIterator[Stack]:
    async with embedded() as running:
        yield running
