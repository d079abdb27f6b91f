"""`errand secrets`: the keys that encrypt stored secrets."""

import click

from cli.database import with_database
from cli.errors import CliError
from cli.options import json_option, settings
from cli.render.output import emit, note
from domain.sealing import KeyRing, KeyRingError
from store.database import Pool
from store.resealing import Resealer


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
