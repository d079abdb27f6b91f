"""A database with our schema, and sessions that nobody runs."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from domain.ids import new_id
from domain.sessions.session import Limits, SessionRef
from store import accepting
from store.database import Pool, connect
from store.migrate import migrate
from tests.support.launch import empty_database
from tests.support.stack import Stack

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
        document = new_session()
        await accepting.accept(pool, tenant, document, [], [], None, None)
        return SessionRef(tenant=tenant, session_id=document["id"], conversation_id=document["id"])

    return accepted


def new_session(conversation_id: str | None = None) -> dict[str, Any]:
    """As accept_session takes it; without a conversation it is the root of its own."""
    name = new_id()
    root = conversation_id or name
    return {
        "id": name,
        "conversation_id": root,
        "thread_id": root,
        "workspace_id": root,
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
