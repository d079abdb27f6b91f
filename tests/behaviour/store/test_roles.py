"""The roles of the API and of the worker: neither owns anything, and the API's role sees one tenant at a time."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
import pytest_asyncio

from deploy.postgres import API_ROLE, WORKER_ROLE
from domain.ids import current_tenant
from store import figures, keys
from store.database import Pool, connect
from store.keys import Right
from tests.behaviour.store.conftest import Accept
from tests.support.launch import as_role
from tests.support.stack import Stack

WITHOUT_POLICY = {"migrations", "workers"}


@pytest.fixture
def of_tenant_a() -> Iterator[None]:
    token = current_tenant.set("a")
    yield
    current_tenant.reset(token)


@pytest_asyncio.fixture
async def url(pool: Pool, stack: Stack) -> str:
    name = await pool.fetchval("SELECT current_database()")
    return f"{stack.database_url.rpartition('/')[0]}/{name}"


@pytest_asyncio.fixture
async def api(stack: Stack, url: str) -> AsyncIterator[Pool]:
    async with await connect(as_role(stack, url, API_ROLE), max_size=1, enters_tenants=True) as pool:
        yield pool


@pytest_asyncio.fixture
async def worker(stack: Stack, url: str) -> AsyncIterator[Pool]:
    async with await connect(as_role(stack, url, WORKER_ROLE), max_size=1) as pool:
        yield pool


async def test_a_statement_that_forgets_its_tenant_sees_nothing_of_others(
    accept: Accept, api: Pool, worker: Pool
) -> None:
    own, foreign = await accept("a"), await accept("b")
    for tenant, seen in (("a", own), ("b", foreign), ("a", own)):  # the same connection changes its tenant
        token = current_tenant.set(tenant)
        rows = await api.fetch("SELECT id FROM sessions WHERE id = ANY($1)", [own.session_id, foreign.session_id])
        assert [row["id"] for row in rows] == [seen.session_id]
        assert {row["tenant"] for row in await api.fetch("SELECT tenant FROM conversations")} == {tenant}
        current_tenant.reset(token)
    assert await api.fetch("SELECT id FROM sessions") == []  # without a tenant it sees nothing
    assert await worker.fetchval("SELECT count(DISTINCT tenant) FROM sessions WHERE tenant IN ('a', 'b')") == 2


async def test_nothing_can_be_written_for_or_taken_from_another_tenant(
    accept: Accept, api: Pool, of_tenant_a: None
) -> None:
    foreign = await accept("b")
    assert await api.execute("UPDATE sessions SET title = 'x' WHERE id = $1", foreign.session_id) == "UPDATE 0"
    assert await api.execute("DELETE FROM sessions WHERE id = $1", foreign.session_id) == "DELETE 0"
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await api.execute("INSERT INTO idempotency (tenant, key) VALUES ('b', 'k')")


async def test_every_table_has_policies_and_no_role_has_more_than_it_needs(pool: Pool) -> None:
    tables = await pool.fetch(
        "SELECT relname, relrowsecurity FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    )
    assert {row["relname"] for row in tables if not row["relrowsecurity"]} == WITHOUT_POLICY
    roles = await pool.fetch("SELECT * FROM pg_roles WHERE rolname = ANY($1)", [API_ROLE, WORKER_ROLE])
    assert len(roles) == 2
    for role in roles:
        assert not any(role[power] for power in ("rolsuper", "rolbypassrls", "rolcreaterole", "rolcreatedb")), role
    owned = (
        "SELECT count(*) FROM pg_class WHERE relowner = ANY(SELECT oid FROM pg_roles WHERE rolname LIKE 'errand\\_%')"
    )
    assert await pool.fetchval(owned) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE mine (id int)",
        "ALTER TABLE sessions DISABLE ROW LEVEL SECURITY",
        "DROP POLICY one_tenant ON sessions",
        "TRUNCATE sessions",
        "SELECT digest FROM api_keys",
        "UPDATE api_keys SET rights = '{admin}'",
        "SELECT * FROM key_rates",
        "UPDATE migrations SET digest = ''",
        "SET ROLE errand",
        "SELECT pg_read_file('/etc/passwd')",
    ],
)
async def test_the_api_changes_neither_the_schema_nor_keys(api: Pool, of_tenant_a: None, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await api.execute(statement)


async def test_the_api_cannot_undo_a_sign_out(pool: Pool, api: Pool) -> None:
    now = datetime.now(UTC)
    await keys.sign_out(api, "expired", now - timedelta(seconds=1))
    await keys.sign_out(api, "copied", now + timedelta(hours=1))  # removes the expired one
    await api.execute("DELETE FROM signed_out_cookies")
    assert [await keys.is_signed_out(pool, one) for one in ("expired", "copied")] == [False, True]
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await api.execute("UPDATE signed_out_cookies SET id = 'x'")


async def test_the_api_finds_keys_and_counts_before_it_knows_a_tenant(pool: Pool, accept: Accept, api: Pool) -> None:
    _, secret = await keys.create(pool, "b", "key", [Right.READ])
    used = await keys.use(api, secret, 60)  # before the tenant is known
    assert used is not None and used.tenant == "b"
    await accept("a")
    assert (await figures.sessions_by_status(api))["submitted"] >= 1
