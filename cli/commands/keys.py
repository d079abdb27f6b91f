"""`errand keys`: API keys. They are written to the database directly, so that the first one needs no key."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import asyncpg
import click

from cli.errors import CliError, NotFoundError, Unreachable
from cli.options import Duration, json_option, settings
from cli.render.output import emit, note, one_line, table
from store import keys as store
from store.database import TRANSIENT_ERRORS, Pool, connect

T = TypeVar("T")

tenant_option = click.option("--tenant", default="default", show_default=True, help="The tenant of the key.")


@click.group()
def keys() -> None:
    """Create, list and revoke API keys in the database: that of ERRAND_DATABASE_URL, else the running stack's."""


@keys.command()
@click.argument("name")
@click.option(
    "--right",
    "rights",
    multiple=True,
    type=click.Choice([right.value for right in store.Right]),
    default=("submit", "read"),
    show_default=True,
    help="What the key may do. Repeatable.",
)
@click.option("--expires", type=Duration(), help="How long it is valid: 12h, 30d.  [default: until revoked]")
@tenant_option
@json_option
def create(name: str, rights: tuple[str, ...], expires: int | None, tenant: str, as_json: bool) -> None:
    """Create a key. Its secret is shown only now and stored nowhere.

    \b
    Examples:
      ./errand keys create ci --right submit --right read --expires 30d
      export ERRAND_API_KEY=$(./errand keys create me 2>/dev/null)
    """
    until = datetime.now(UTC) + timedelta(milliseconds=expires) if expires else None
    chosen = [store.Right(right) for right in rights]
    key, secret = _run(lambda pool: store.create(pool, tenant, name, chosen, until))
    if as_json:
        emit({**key.model_dump(mode="json"), "secret": secret})
        return
    click.echo(secret)
    note(f"Key {key.id} ({', '.join(key.rights)}). Keep the secret: it is not shown again.")


@keys.command("list")
@click.option("--tenant", help="Only keys of this tenant.")
@json_option
def list_keys(tenant: str | None, as_json: bool) -> None:
    """List the keys, without their secrets."""
    found = _run(lambda pool: store.listing(pool, tenant))
    if as_json:
        emit({"items": [key.model_dump(mode="json") for key in found]})
    elif found:
        rows = [[key.id, key.tenant, _state(key), ",".join(key.rights), one_line(key.name)] for key in found]
        table(["KEY", "TENANT", "STATE", "RIGHTS", "NAME"], rows)
    else:
        note("no keys")


@keys.command()
@click.argument("key_id")
@tenant_option
@json_option
def revoke(key_id: str, tenant: str, as_json: bool) -> None:
    """Revoke a key: it is refused from now on."""
    if not _run(lambda pool: store.revoke(pool, tenant, key_id)):
        raise NotFoundError(f"tenant {tenant} has no key {key_id}")
    if as_json:
        emit({"id": key_id, "tenant": tenant, "revoked": True})
    else:
        click.echo(f"revoked {key_id}")


def _state(key: store.Key) -> str:
    if key.revoked_at:
        return "revoked"
    if key.expires_at and key.expires_at < datetime.now(UTC):
        return "expired"
    return f"until {key.expires_at:%Y-%m-%d}" if key.expires_at else "valid"


def _run(query: Callable[[Pool], Awaitable[T]]) -> T:
    from deploy.local import database_url  # slow to import
    from deploy.state import StackError

    async def connected() -> T:
        pool = await connect(address, max_size=1)
        try:
            return await query(pool)
        finally:
            await pool.close()

    try:
        address = database_url(settings())
        return asyncio.run(connected())
    except StackError as error:
        raise Unreachable(str(error)) from None
    except asyncpg.UndefinedTableError:
        raise CliError("the database has no schema yet; `python -m store.migrate` creates it") from None
    except TRANSIENT_ERRORS as error:
        raise Unreachable(f"cannot reach the database: {error}") from None
    except asyncpg.PostgresError as error:
        raise CliError(f"the database refused the query: {error}") from None
