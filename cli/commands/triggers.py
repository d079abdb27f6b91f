"""`errand triggers`: events from outside that start agents."""

from typing import Any

import click
from errand.models import CreatedTrigger, Trigger, TriggerPage

from cli.api import Api, segment
from cli.options import ListGroup, add_remove, add_show, below, remote
from cli.render.answers import print_answer, print_list
from cli.render.output import facts, one_line
from domain.json_object import read_json
from domain.triggers import SignatureKind, TriggerContext


@click.group(cls=ListGroup)
def triggers() -> None:
    """Let signed events of services start agents.

    \b
    Examples:
      ./errand triggers add issues assistant "Sort this issue" --signature github --equals type=issues
      ./errand triggers show issues
    """


@triggers.command()
@click.argument("name")
@click.argument("agent")
@click.argument("text", metavar="INPUT")
@click.option("--signature", type=click.Choice([one.value for one in SignatureKind]), required=True)
@click.option("--secret", help="Signs the events; without it one is made and shown once.")
@click.option("--equals", "conditions", multiple=True, metavar="PATH=VALUE", help="A condition. Repeatable.")
@click.option("--template", help="What the agent reads of the event, with {{payload.field}}.")
@click.option("--correlation", help="The key of an event, such as order:{{payload.order.id}}.")
@click.option("--context", type=click.Choice([one.value for one in TriggerContext]), help="Which conversation.")
@click.option("--conversation", "conversation_id", help="Send the messages to this conversation.")
@remote
def add(api: Api, name: str, agent: str, text: str, conditions: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Add or change a trigger: events sent to NAME make AGENT do INPUT."""
    body = {key: value for key, value in options.items() if value is not None}
    body |= {"task": {"agent": agent, "input": text}, "filter": [_condition(one) for one in conditions]}
    made = api.ask("PUT", f"/triggers/{segment(name)}", json=body)
    print_answer(made, as_json, CreatedTrigger if "secret" in made else Trigger, _show)


@triggers.command("list")
@remote
def list_triggers(api: Api, as_json: bool) -> None:
    """List the triggers."""
    columns = ["NAME", "SIGNATURE", "AGENT", "URL", "INPUT"]
    print_list(api.get("/triggers"), as_json, TriggerPage, columns, _row, empty="no triggers")


def _row(item: Trigger) -> list[str]:
    return [item.name, item.signature, item.agent or "", item.url, one_line(item.prompt)]


def _condition(text: str) -> dict[str, Any]:
    path, found, value = text.partition("=")
    if not found:
        raise click.BadParameter("must be PATH=VALUE", param_hint="--equals")
    try:
        parsed = read_json(value)
    except ValueError:
        parsed = value
    # lists and objects stay text: a condition compares only single values
    return {"path": path, "equals": parsed if isinstance(parsed, int | float | bool) else value}


def _show(item: Trigger) -> None:
    facts(
        [
            ("trigger", f"{item.name} ({item.id})"),
            ("events to", item.url),
            ("signature", item.signature),
            ("secret", item.secret if isinstance(item, CreatedTrigger) else None),
            ("agent", item.agent),
            ("correlation", item.correlation),
        ]
    )


add_show(triggers, below("/triggers"), Trigger, _show, "Show a trigger.")
add_remove(triggers, below("/triggers"), "Remove a trigger. Its conversations stay.")
