"""Database access for commands: that of ERRAND_DATABASE_URL, else the running stack's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from cli.errors import CliError, Unreachable
from cli.options import settings
from settings import Settings
from store.database import TRANSIENT_ERRORS, Pool, connect

T = TypeVar("T")


def with_database(
    query: Callable[[Pool], Awaitable[T]], given: Settings | None = None, seconds: float | None = None
) -> T:
    """`given`: the settings, if there is no command context to find them in; `seconds`: how long to wait."""
    from deploy.local import database_url  # slow to import
    from deploy.state import StackError

    async def connected() -> T:
        # one connection is enough, and a database that is short of them still lets an operator in
        pool = await connect(address, max_size=1)
        try:
            return await query(pool)
        finally:
            await pool.close()

    try:
        address = database_url(given or settings())
        return asyncio.run(asyncio.wait_for(connected(), seconds))
    except StackError as error:
        raise Unreachable(str(error)) from None
    except asyncpg.UndefinedTableError:
        raise CliError("the database has no schema yet; `python -m store.migrate` creates it") from None
    except TRANSIENT_ERRORS as error:
        raise Unreachable(f"cannot reach the database: {error}") from None
    except asyncpg.PostgresError as error:
        raise CliError(f"the database refused the query: {error}") from None
