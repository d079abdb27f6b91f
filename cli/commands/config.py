"""`errand config`: the effective settings, and where each was set."""

import re

import click

from cli.options import json_option, settings
from cli.render.output import dim, emit, one_line, table
from deploy.stack import text_of
from settings import OF_THE_TERMINAL, SECRETS, VARIABLES, Given, field_of, read_sources

MASK = "****"


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also show settings that have their default.")
@json_option
def config(everything: bool, as_json: bool) -> None:
    """Show the settings, each with its value and where it came from; secrets are masked.

    The environment has priority over the file .env, and that over errand.toml, both in the checkout. In errand.toml a
    setting is written without ERRAND_ and in small letters: port = 8701. A running stack keeps the settings it was
    started with.

    \b
    Examples:
      ./errand config
      ./errand config --all --json
    """
    given = {name: one for name, one in read_sources().items() if one.text.strip() and name not in OF_THE_TERMINAL}
    shown = [name for name in VARIABLES if name not in OF_THE_TERMINAL and (everything or name in given)]
    rows = [(name, _value(name), given.get(name, Given("", "default")).source) for name in shown]
    if as_json:
        emit({"items": [{"name": name, "value": value, "source": source} for name, value, source in rows]})
        return
    if rows:
        table(["SETTING", "FROM", "VALUE"], [[name, source, one_line(value)] for name, value, source in rows])
    if not everything:
        click.echo(
            dim(f"{len(VARIABLES) - len(OF_THE_TERMINAL) - len(rows)} more have their default; --all shows them.")
        )


def _value(name: str) -> str:
    value = getattr(settings(), field_of(name))
    if value is None:
        return ""
    # an empty secret is shown as empty, so that people see that it is not set
    return MASK if name in SECRETS and value else without_passwords(text_of(value))


def without_passwords(text: str) -> str:
    """An address with its passwords masked, wherever drivers accept one: before @, as a parameter, or as a keyword."""
    text = re.sub(
        r"(://[^:/@]*):.*@", rf"\1:{MASK}@", text
    )  # up to the last @: a password may have characters of a URL
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^&\s]+)", rf"\1{MASK}", text, flags=re.IGNORECASE)
