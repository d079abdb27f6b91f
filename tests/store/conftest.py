"""A database with our schema, and sessions that nobody runs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from domain.ids import new_id
from domain.session import Limits, SessionRef
from store import accepting
from store.database import Pool, connect
from store.migrate import migrate
from tests.launch import empty_database
from tests.stack import Stack

Accept = Callable[..., Awaitable[SessionRef]]


@pytest_asyncio.fixture(scope="session")
async def pool(stack: Stack) -> AsyncIterator[Pool]:
    """A database of its own: the sweeper must not find what no workflow runs."""
    async with empty_database(stack.database_url) as url:
        await migrate(url)
        async with await connect(url, max_size=20) as pool:
            yield pool


@pytest.fixture
def accept(pool: Pool) -> Accept:
    async def accepted(tenant: str = "default") -> SessionRef:
        name = new_id()
        document = {
            "id": name,
            "conversation_id": name,
            "thread_id": name,
            "workspace_id": name,
            "session_type": "agent",
            "trigger": "api",
            "agent_owner": "*",
            "agent": "tester",
            "agent_version": 1,
            "models": ["offline"],
            "title": "a session",
            "spec": "{}",
            "limits": Limits().model_dump_json(),
            "deadline": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
            "manifest": "{}",
            "created_by": "test",
        }
        await accepting.accept(pool, tenant, document, [], [], None, None)
        return SessionRef(tenant=tenant, session_id=name, conversation_id=name)

    return accepted
