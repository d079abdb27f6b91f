"""`errand credentials`: secrets that tasks use and never see."""

import sys

import click
from errand.models import Credential, CredentialPage

from cli.api import Api, parse, segment
from cli.options import ListGroup, remote
from cli.render.answers import print_list
from cli.render.output import emit, note, one_line, table


@click.group(cls=ListGroup)
def credentials() -> None:
    """List, store and remove credentials: requests of a task to their hosts get them on the way out.

    \b
    Examples:
      ./errand credentials
      ./errand credentials set shop-bot --host github.com --host api.github.com --write < token.txt
      ./errand credentials set shop-bot --mine --host github.com < my-token.txt
      ./errand credentials remove shop-bot
    """


COLUMNS = ["CREDENTIAL", "OF", "HOSTS", "ACCESS"]

_mine = click.option("--mine", is_flag=True, help="Yours: only tasks of your key use it, before one of the tenant.")


@credentials.command("list")
@remote
def list_credentials(api: Api, as_json: bool) -> None:
    """List the credentials, without their secrets."""
    print_list(api.get("/credentials"), as_json, CredentialPage, COLUMNS, _row, empty="there is no credential")


@credentials.command("set")
@click.argument("name")
@click.option("--host", "hosts", multiple=True, help="A host that gets it, over TLS. Repeatable.")
@click.option("--username", help="That git sends with it.  [default: x-access-token]")
@click.option("--write", is_flag=True, help="Also for requests that change something, such as a push.")
@_mine
@remote
def set_credential(
    api: Api, name: str, hosts: tuple[str, ...], username: str | None, write: bool, mine: bool, as_json: bool
) -> None:
    """Store the credential NAME, or replace it. The secret is read from the standard input, or asked for."""
    secret = click.prompt("secret", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read().strip()
    body = {"secret": secret, "hosts": list(hosts), "access": "write" if write else "read"}
    body |= {"username": username} if username else {}
    answer = api.ask("PUT", f"/credentials/{segment(name)}", params=_of(mine), json=body)
    emit(answer) if as_json else table(COLUMNS, [_row(parse(Credential, answer))])


@credentials.command()
@click.argument("name")
@_mine
@remote
def remove(api: Api, name: str, mine: bool, as_json: bool) -> None:
    """Remove a credential."""
    api.request("DELETE", f"/credentials/{segment(name)}", params=_of(mine))
    emit({"name": name, "removed": True}) if as_json else note(f"{name} is removed")


def _of(mine: bool) -> dict[str, str]:
    return {"scope": "user" if mine else "tenant"}


def _row(one: Credential) -> list[str]:
    return [one.name, one.scope, one_line(", ".join(one.hosts)) or "(variables alone)", one.access]
