"""`errand agents`: list the agents, or show one."""

from typing import Any

import click

from cli.client.api import Api, segment
from cli.options import remote
from cli.render.output import clean, emit, facts, one_line, table

_LISTS = ("fallback_models", "tools", "subagents")


@click.command()
@click.argument("name", required=False)
@remote
def agents(api: Api, name: str | None, as_json: bool) -> None:
    """List the agents, or show one of them with its prompt.

    \b
    Examples:
      ./errand agents
      ./errand agents researcher
    """
    answer = api.get(f"/agents/{segment(name)}" if name else "/agents")
    if as_json:
        emit(answer)
    elif name:
        _show(answer)
    else:
        rows = [[item["name"], str(item.get("model") or "default"), item["description"]] for item in answer["items"]]
        table(["AGENT", "MODEL", "DESCRIPTION"], rows)


def _show(agent: dict[str, Any]) -> None:
    """Print a definition, whose fields may be those of another version."""
    plain = [
        (field, one_line(str(agent[field]), 1_000))
        for field in ("name", "version", "mode", "description", "model")
        if agent.get(field)
    ]
    lists = [(field.replace("_", " "), ", ".join(map(str, agent.get(field) or []))) for field in _LISTS]
    facts([*plain, *lists])
    if agent.get("prompt"):
        click.echo("\n" + clean(str(agent["prompt"])))
