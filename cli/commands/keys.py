"""`errand keys`: API keys. They are written to the database directly, so that the first one needs no key."""

from datetime import UTC, datetime, timedelta

import click

from cli.database import with_database
from cli.errors import CliError, NotFoundError
from cli.options import Duration, ListGroup, json_option, settings
from cli.render.output import emit, note, one_line, table
from domain.sealing import KeyRing, KeyRingError
from store import keys as store
from store.database import Pool
from store.resealing import Resealer

tenant_option = click.option("--tenant", default="default", show_default=True, help="The tenant of the key.")


@click.group(cls=ListGroup)
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
    key, secret = with_database(lambda pool: store.create(pool, tenant, name, chosen, until))
    if as_json:
        emit({**key.model_dump(mode="json"), "secret": secret})
        return
    # alone on stdout, so that $(…) takes the secret and nothing else
    click.echo(secret)
    note(f"Key {key.id} ({', '.join(key.rights)}). Keep the secret: it is not shown again.")


@keys.command("list")
@click.option("--tenant", help="Only keys of this tenant.")
@json_option
def list_keys(tenant: str | None, as_json: bool) -> None:
    """List the keys, without their secrets."""
    found = with_database(lambda pool: store.list_all(pool, tenant))
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
    if not with_database(lambda pool: store.revoke(pool, tenant, key_id)):
        raise NotFoundError(f"tenant {tenant} has no key {key_id}")
    emit({"id": key_id, "tenant": tenant, "revoked": True}) if as_json else click.echo(f"revoked {key_id}")


def _state(key: store.Key) -> str:
    if key.revoked_at:
        return "revoked"
    if key.expires_at and key.expires_at < datetime.now(UTC):
        return "expired"
    return f"until {key.expires_at:%Y-%m-%d}" if key.expires_at else "valid"


@click.group()
def secrets() -> None:
    """Stored secrets: addresses and secrets of subscriptions, connectors, triggers, secret variables."""


@secrets.command()
@json_option
def rotate(as_json: bool) -> None:
    """Encrypt all stored secrets again, with the first key of ERRAND_SECRET_KEYS.

    First put the new key before the old one and restart the API and the workers. Afterwards the old key is needed only
    for encrypted payloads that Temporal still stores. The command may be interrupted and repeated.
    """
    from deploy.local import secret_keys  # slow to import

    try:
        keys = KeyRing.parse(secret_keys(settings()))
    except KeyRingError as error:
        raise CliError(str(error)) from None
    if not keys:
        raise CliError("no key is set: set ERRAND_SECRET_KEYS, the newest key first")

    async def reseal(pool: Pool) -> Resealer:
        resealer = Resealer(pool, keys)
        await resealer.run()
        return resealer

    done = with_database(reseal)
    if as_json:
        emit({"key": keys.current, "changed": dict(done.changed), "unreadable": dict(done.unreadable)})
    else:
        click.echo(f"encrypted {done.changed.total()} stored values with the key {keys.current}")
        for column, count in done.changed.items():
            note(f"{column}: {count}")
    # reported last and as an error: these values are lost once the old key is removed
    if done.unreadable:
        places = ", ".join(f"{count} in {column}" for column, count in done.unreadable.items())
        raise CliError(f"some values could not be decrypted and stay as they are ({places}): is an older key missing?")
