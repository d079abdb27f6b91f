"""`errand subscriptions`: who is told of what, by which channel."""

from typing import Any

import click

from cli.client.api import Api, part
from cli.client.errors import NotFoundError
from cli.options import remote
from cli.render.output import age, emit, note, one_line, table
from domain.notification import ROTATION_HOURS, ChannelName, NotificationSubject


@click.group()
def subscriptions() -> None:
    """Subscribe to what happens: webhooks, Slack, e-mail, push. What was told, and what was not: `deliveries`.

    \b
    Examples:
      ./errand subscriptions add ops webhook https://hooks.example.org/errand
      ./errand subscriptions add me email me@example.org --only-named
      ./errand run assistant "Look around" --notify me
    """


@subscriptions.command("list")
@remote
def list_subscriptions(api: Api, as_json: bool) -> None:
    """List the subscriptions."""
    page = api.get("/subscriptions")
    if as_json:
        emit(page)
        return
    if not page["items"]:
        note("no subscriptions")
        return
    rows = [
        [
            one["name"],
            one["channel"],
            click.style(one["status"], fg="green" if one["status"] == "active" else "red"),
            "every task" if one["every_task"] else "if named",
            "all" if set(one["events"]) >= set(NotificationSubject) else ",".join(one["events"]),
            one_line(one["target"]) + (f"  failing: {one_line(one['last_error'])}" if one["last_error"] else ""),
        ]
        for one in page["items"]
    ]
    table(["NAME", "CHANNEL", "STATUS", "TELLS OF", "EVENTS", "TARGET"], rows)


@subscriptions.command()
@click.argument("name")
@click.argument("channel", type=click.Choice([channel.value for channel in ChannelName]))
@click.argument("target")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice([subject.value for subject in NotificationSubject]),
    help="Only of this. Repeatable.  [default: all]",
)
@click.option("--only-named", is_flag=True, help="Only of tasks that name it with --notify.")
@remote
def add(
    api: Api, name: str, channel: str, target: str, events: tuple[str, ...], only_named: bool, as_json: bool
) -> None:
    """Subscribe. TARGET is a URL, or for email an address. A webhook's secret is shown this once, on stdout."""
    wish = {"name": name, "channel": channel, "target": target, "every_task": not only_named}
    made = api.send("POST", "/subscriptions", json=wish | ({"events": list(events)} if events else {})).json()
    _show_secret(made, as_json)


@subscriptions.command()
@click.argument("name")
@remote
def rotate(api: Api, name: str, as_json: bool) -> None:
    """Give a webhook a new secret. For a day the old one signs too."""
    _show_secret(_on(api, name, "POST", "/rotate").json(), as_json)
    note(f"For {ROTATION_HOURS} hours both secrets sign.")


@subscriptions.command()
@click.argument("name")
@remote
def enable(api: Api, name: str, as_json: bool) -> None:
    """Switch a subscription on again, after nothing had got through for long."""
    found = _on(api, name, "POST", "/enable").json()
    emit(found) if as_json else click.echo(f"{name} is {found['status']}")


@subscriptions.command()
@click.argument("name")
@remote
def test(api: Api, name: str, as_json: bool) -> None:
    """Send a notice, to see that it arrives."""
    sent = _on(api, name, "POST", "/test").json()
    emit(sent) if as_json else click.echo(sent["id"])


@subscriptions.command()
@click.argument("name")
@remote
def remove(api: Api, name: str, as_json: bool) -> None:
    """End a subscription. What is still on its way to it is given up."""
    _on(api, name, "DELETE", "")
    emit({"name": name, "removed": True}) if as_json else click.echo(f"removed {name}")


def named(api: Api, name: str) -> dict[str, Any]:
    """By its name or its id."""
    for one in api.get("/subscriptions")["items"]:
        if name in (one["name"], one["id"]):
            found: dict[str, Any] = one
            return found
    raise NotFoundError(f"there is no subscription {name}")


def _on(api: Api, name: str, method: str, verb: str) -> Any:
    return api.send(method, f"/subscriptions/{part(named(api, name)['id'])}{verb}")


def _show_secret(made: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit(made)
        return
    if made["secret"]:
        click.echo(made["secret"])
    kept = " Keep the secret: it is not shown again." if made["secret"] else ""
    note(f"{made['name']} ({made['channel']}, {made['status']}, since {age(made['created_at'])}).{kept}")
