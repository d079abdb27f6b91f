"""The connection pool, and retries while the database is briefly unreachable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import asyncpg
import pydantic_core

from domain.ids import current_tenant

Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
T = TypeVar("T")

# Errors of a server that died, restarts or dropped the connection (asyncpg raises InternalClientError for some of
# them), and errors that rolled a transaction back for the server's own reasons: a second attempt succeeds.
TRANSIENT_ERRORS: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # the server shuts down, starts or crashed, or a person cancelled the statement
    asyncpg.InsufficientResourcesError,  # too many connections, no memory, no room
    asyncpg.TransactionRollbackError,  # a deadlock
    asyncpg.LockNotAvailableError,
    asyncpg.ReadOnlySQLTransactionError,  # after a failover another server is the primary
    asyncpg.InvalidCachedStatementError,  # the schema changed; asyncpg drops its cached statements
    asyncpg.InternalClientError,
    asyncpg.InterfaceError,
    ConnectionError,
    TimeoutError,
    OSError,
)


@dataclass(frozen=True)
class PoolPatience:
    """Seconds after which a database that does not answer counts as unreachable."""

    statement: float = 10.0
    connect: float = 5.0
    acquire: float | None = None  # wait for a free or a new connection
    release: float | None = None


# A request must be answered within five seconds even if PostgreSQL is stopped but not dead. In that state nothing fails
# at once, and a statement that timed out would wait for its own cancellation without end.
FOR_REQUESTS = PoolPatience(statement=3.0, connect=3.0, acquire=4.0, release=0.5)


class PatientPool(asyncpg.Pool):
    patience = PoolPatience()

    def acquire(self, *, timeout: float | None = None) -> Any:
        return super().acquire(timeout=timeout or self.patience.acquire)

    async def release(self, connection: Any, *, timeout: float | None = None) -> None:  # noqa: ASYNC109  asyncpg's own
        await super().release(connection, timeout=timeout or self.patience.release)


class TenantConnection(asyncpg.Connection):
    """A connection that remembers its current tenant, so that only a change of tenant costs a round trip.

    The tenant matters to the role errand_api, whose row-level policies (roles.sql) compare it; other roles ignore it.
    """

    tenant: str | None = None

    async def enter(self, tenant: str) -> None:
        if self.tenant != tenant:
            self.tenant = None  # unknown until the server has confirmed the new one
            await self.execute("SELECT set_config('errand.tenant', $1, false)", tenant)
            self.tenant = tenant


async def _enter_current_tenant(connection: Any) -> None:
    await connection.enter(current_tenant.get())


async def connect(
    url: str,
    *,
    min_size: int = 0,
    max_size: int = 10,
    patience: PoolPatience | None = None,
    enters_tenants: bool = False,
    name: str = "",
) -> Pool:
    """A pool. With `enters_tenants`, each use of a connection sees only the rows of `current_tenant`. PostgreSQL lists
    the connections under `name`."""
    patience = patience or PoolPatience()
    # asyncpg.create_pool cannot make a subclass, so its default arguments are repeated here.
    pool = PatientPool(
        url,
        connection_class=TenantConnection,
        record_class=asyncpg.Record,
        init_size=None,
        min_size=min_size,
        max_size=max_size,
        max_queries=50_000,
        max_inactive_connection_lifetime=300.0,
        connect=None,
        setup=_enter_current_tenant if enters_tenants else None,
        init=None,
        reset=_keep,
        loop=None,
        command_timeout=patience.statement,
        timeout=patience.connect,
        server_settings={"jit": "off", "application_name": name},
    )
    pool.patience = patience
    await pool
    return pool


async def _keep(connection: object) -> None:
    """Skip asyncpg's reset on release, which would cost a second round trip after every statement. Nothing needs a
    reset: no advisory lock or LISTEN of ours outlives its transaction on a pooled connection, and the only setting is
    that of TenantConnection. asyncpg itself still rolls back open transactions."""


COMMIT_PATIENCE = 300.0  # seconds of retries once something was paid for or has happened: a restart loses none of it


async def patiently(operation: Callable[[], Awaitable[T]], *, seconds: float, pause: float = 0.2) -> T:
    """Repeat an operation while the database is unreachable. Only for statements that may safely run twice."""
    give_up = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            return await operation()
        except TRANSIENT_ERRORS:
            if asyncio.get_running_loop().time() + pause > give_up:
                raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)


async def decide(pool: Pool, work: Callable[[Connection], Awaitable[T]], keeps: Callable[[T], bool]) -> T:
    """Do work in one transaction, which is rolled back unless `keeps` accepts the result: a refusal leaves no trace."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            result = await work(connection)
        except BaseException:
            await transaction.rollback()
            raise
        await (transaction.commit() if keeps(result) else transaction.rollback())
        return result


async def call(pool: "Pool | Connection", function: str, argument: object) -> Any:
    """Call a SQL function that takes one JSON document: one statement, one round trip, one transaction."""
    return await pool.fetchval(f"SELECT {function}($1::jsonb)", to_json(argument))


def to_json(value: object) -> str:
    """Models, and collections of them, as the JSON that a SQL function takes."""
    return pydantic_core.to_json(value).decode()


# Rows as what is made of their columns, by name.


log = logging.getLogger("errand.store")


def read_row(make: Callable[..., T], row: asyncpg.Record | None) -> T | None:
    return make(**row) if row is not None else None


async def fetch_one(source: "Pool | Connection", make: Callable[..., T], sql: str, *values: object) -> T | None:
    return read_row(make, await source.fetchrow(sql, *values))


async def fetch_all(source: "Pool | Connection", make: Callable[..., T], sql: str, *values: object) -> list[T]:
    return [make(**row) for row in await source.fetch(sql, *values)]


def keep_readable(rows: Iterable[asyncpg.Record], make: Callable[..., T], what: str) -> list[T]:
    """What can be made of the rows. Rows that another version wrote or a person changed must not block the others."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(make(**row))
        except ValueError:  # the errors of pydantic and json are both ValueErrors
            log.exception("%s %s cannot be read", what, row["id"])
    return found
