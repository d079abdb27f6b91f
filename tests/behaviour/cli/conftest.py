"""The fixtures of the commands' unit tests, and a database with the schema."""

from collections.abc import AsyncIterator

import pytest_asyncio

from store.migrate import migrate
from tests.support.launch import empty_database
from tests.support.stack import Stack
from tests.unit.cli.conftest import cli

__all__ = ["cli"]


@pytest_asyncio.fixture
async def database_url(stack: Stack) -> AsyncIterator[str]:
    async with empty_database(stack.database_url) as url:
        await migrate(url)
        yield url
