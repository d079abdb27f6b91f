"""`errand config`: the effective settings, and where each was set."""

import contextlib

import click

from cli.options import json_option, settings
from cli.render.output import PROGRAM, dim, emit, note, one_line, table
from deploy import state
from deploy.data_dir import locate_data_dir
from deploy.stack import mask_setting, text_of
from settings import CLI_ONLY, OF_THE_TERMINAL, VARIABLES, Given, field_of, read_sources


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also show settings that have their default.")
@json_option
def config(everything: bool, as_json: bool) -> None:
    """Show the settings, each with its value and where it came from; secrets are masked.

    The environment has priority over the file .env, and that over errand.toml, both in the checkout. In errand.toml a
    setting is written without ERRAND_ and in small letters: port = 8701. A running stack keeps the settings it was
    started with: where these differ, they are shown too.

    \b
    Examples:
      ./errand config
      ./errand config --all --json
    """
    given = {name: one for name, one in read_sources().items() if one.text.strip() and name not in OF_THE_TERMINAL}
    values = {name: _value(name) for name in VARIABLES if name not in OF_THE_TERMINAL}
    other = {name: text for name, text in _running().items() if text != values[name]}
    rows = [
        {"name": name, "value": value, "source": given.get(name, Given("", "default")).source}
        | ({"running": other[name]} if name in other else {})
        for name, value in values.items()
        if everything or name in given or name in other
    ]
    if as_json:
        emit({"items": rows})
        return
    if rows:
        lines = [[one["name"], one["source"], one_line(one["value"])] for one in rows]
        table(["SETTING", "FROM", "VALUE"], lines)
    for name, text in other.items():
        note(f"the running stack was started with {name}={one_line(text) or '(not set)'}")
    if other:
        note(f"`{PROGRAM} down` and `{PROGRAM} up` apply the settings above")
    if not everything:
        click.echo(dim(f"{len(values) - len(rows)} more have their default; --all shows them."))


def _value(name: str) -> str:
    value = getattr(settings(), field_of(name))
    return "" if value is None else mask_setting(name, text_of(value))


def _running() -> dict[str, str]:
    """The settings with which the stack of this data folder was started; empty if none is running."""
    with contextlib.suppress(state.StackError):
        if (info := state.running(locate_data_dir(settings()))) and info.started_with:
            return {name: info.started_with.get(name, "") for name in VARIABLES if name not in CLI_ONLY}
    return {}
