"""A database with the schema, and sessions without workflows."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from domain.ids import new_id
from domain.sessions.new_session import NewSession, PlacedSession
from domain.sessions.session import SessionRef
from domain.sessions.writes import Acceptance
from store import sessions
from store.database import Pool, connect
from store.migrate import migrate
from tests.support.launch import empty_database
from tests.support.stack import Stack

Accept = Callable[..., Awaitable[SessionRef]]
NEW = NewSession(
    agent_owner="*", agent="tester", agent_version=1, models=["offline"], title="a session", created_by="test"
)


@pytest_asyncio.fixture(scope="session")
async def database(stack: Stack) -> AsyncIterator[str]:
    """A separate database, because a sweep must not find sessions without workflows."""
    async with empty_database(stack.database_url) as url:
        await migrate(url)
        yield url


@pytest_asyncio.fixture(scope="session")
async def pool(database: str) -> AsyncIterator[Pool]:
    async with await connect(database, max_size=20) as pool:
        yield pool


@pytest.fixture
def accept(pool: Pool) -> Accept:
    async def accepted(tenant: str = "default") -> SessionRef:
        session = new_session(tenant=tenant)
        await sessions.accept(pool, Acceptance(session=session))
        return session.ref

    return accepted


def new_session(conversation_id: str | None = None, tenant: str = "default") -> PlacedSession:
    """Create a session; without a conversation it is the root of a new one."""
    name = new_id()
    ref = SessionRef(tenant=tenant, session_id=name, conversation_id=conversation_id or name)
    return NEW.model_copy(update={"workspace_id": ref.conversation_id}).place(ref)
