"""`errand agents`: who there is to run."""

import click

from cli.client.api import Api, part
from cli.options import remote
from cli.render.output import clean, emit, facts, one_line, table


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
    answer = api.get(f"/agents/{part(name)}" if name else "/agents")
    if as_json:
        emit(answer)
    elif name:
        _show(answer)
    else:
        rows = [[item["name"], str(item.get("model") or "default"), item["description"]] for item in answer["items"]]
        table(["AGENT", "MODEL", "WHAT IT DOES"], rows)


def _show(agent: dict[str, object]) -> None:
    lists = [(key, ", ".join(map(str, _items(agent.get(key))))) for key in ("fallback_models", "tools", "subagents")]
    plain = [
        (key, one_line(str(agent[key]), 1_000))
        for key in ("name", "version", "mode", "description", "model")
        if agent.get(key)
    ]
    facts([*plain, *((key.replace("_", " "), value) for key, value in lists)])
    if agent.get("prompt"):
        click.echo("\n" + clean(str(agent["prompt"])))


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
