"""`errand subscriptions` and `deliveries`: who is notified of what, what was sent, and sending it again."""

from typing import Any

import click
from errand.models import CreatedSubscription, Delivery, DeliveryPage, Subscription, SubscriptionPage

from cli.api import Api, parse, segment
from cli.errors import NotFoundError
from cli.options import ListGroup, add_remove, page_options, remote
from cli.render.answers import print_list
from cli.render.output import age, emit, note, one_line
from domain.notifications import ROTATION_HOURS, ChannelName, DeliveryStatus, NotificationSubject


@click.group(cls=ListGroup)
def subscriptions() -> None:
    """Subscribe to notifications: webhooks, Slack, e-mail, push. `deliveries` shows what was sent and what failed.

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
    columns = ["NAME", "CHANNEL", "STATUS", "TASKS", "EVENTS", "TARGET"]
    print_list(api.get("/subscriptions"), as_json, SubscriptionPage, columns, _row, empty="no subscriptions")


def _row(item: Subscription) -> list[str]:
    return [
        item.name,
        item.channel,
        click.style(item.status, fg="green" if item.status == "active" else "red"),
        ("every task" if item.every_task else "if named") + (", subagents" if item.subagents else ""),
        "all" if set(item.events) >= set(NotificationSubject) else ",".join(item.events),
        one_line(item.target) + (f"  failing: {one_line(item.last_error)}" if item.last_error else ""),
    ]


@subscriptions.command()
@click.argument("name")
@click.argument("channel", type=click.Choice([channel.value for channel in ChannelName]))
@click.argument("target")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice([subject.value for subject in NotificationSubject]),
    help="Only this event. Repeatable.  [default: all]",
)
@click.option("--only-named", is_flag=True, help="Only for tasks that name it with --notify.")
@click.option("--subagents", is_flag=True, help="Also when a subagent has ended.")
@remote
def add(
    api: Api,
    name: str,
    channel: str,
    target: str,
    events: tuple[str, ...],
    only_named: bool,
    subagents: bool,
    as_json: bool,
) -> None:
    """Add a subscription. TARGET is a URL, or for email an address. A webhook's secret is shown only now, on stdout."""
    body = {"name": name, "channel": channel, "target": target, "every_task": not only_named, "subagents": subagents}
    created = api.ask("POST", "/subscriptions", json=body | ({"events": list(events)} if events else {}))
    _show_secret(created, as_json)


@subscriptions.command()
@click.argument("name")
@remote
def rotate(api: Api, name: str, as_json: bool) -> None:
    """Give a webhook a new secret. For a day its notifications are also signed with the old one."""
    _show_secret(api.ask("POST", _path(api, name, "/rotate")), as_json)
    note(f"For {ROTATION_HOURS} hours notifications are signed with both secrets.")


@subscriptions.command()
@click.argument("name")
@remote
def enable(api: Api, name: str, as_json: bool) -> None:
    """Enable a subscription that was disabled because its deliveries failed for a long time."""
    found = api.ask("POST", _path(api, name, "/enable"))
    emit(found) if as_json else click.echo(f"{name} is {found['status']}")


def all_subscriptions(api: Api) -> list[Subscription]:
    return parse(SubscriptionPage, api.get("/subscriptions")).items


def find_subscription(api: Api, name: str) -> Subscription:
    """The subscription with this name or id."""
    for subscription in all_subscriptions(api):
        if name in (subscription.name, subscription.id):
            return subscription
    raise NotFoundError(f"there is no subscription {name}")


def _path(api: Api, name: str, rest: str = "") -> str:
    return f"/subscriptions/{segment(find_subscription(api, name).id)}{rest}"


add_remove(subscriptions, _path, "Remove a subscription. Its undelivered notifications are dropped.")


def _show_secret(answer: Any, as_json: bool) -> None:
    if as_json:
        emit(answer)
        return
    created = parse(CreatedSubscription, answer)
    if created.secret:
        click.echo(created.secret)
    warning = " Keep the secret: it is not shown again." if created.secret else ""
    note(f"{created.name} ({created.channel}, {created.status}, created {age(created.created_at)}).{warning}")


_COLOURS = {"delivered": "green", "failed": "red"}


@click.group(cls=ListGroup)
def deliveries() -> None:
    """Show notifications sent to subscriptions: how often each was tried, and why it did not arrive.

    \b
    Examples:
      ./errand deliveries list --status failed
      ./errand deliveries list --to ops --json | jq -r '.items[].id'
      ./errand deliveries resend ID
    """


@deliveries.command("list")
@click.option("--status", type=click.Choice([status.value for status in DeliveryStatus]), help="Only with this status.")
@click.option("--to", "name", help="Only to this subscription.")
@click.option("--task", "task_id", help="Only about this task.")
@page_options("Deliveries")
@remote
def list_deliveries(
    api: Api,
    status: str | None,
    name: str | None,
    task_id: str | None,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List deliveries, newest first."""
    subscription_id = find_subscription(api, name).id if name else None
    answer = api.get(
        "/deliveries", status=status, subscription_id=subscription_id, task_id=task_id, limit=limit, cursor=cursor
    )
    names = {} if as_json else {one.id: one.name for one in all_subscriptions(api)}

    def row(one: Delivery) -> list[str]:
        status = click.style(one.status, fg=_COLOURS.get(one.status, "cyan"))
        to = names.get(one.subscription_id, "(removed)")
        return [one.id, status, one.event, to, str(one.attempts), age(one.created_at), one.last_error or ""]

    columns = ["DELIVERY", "STATUS", "EVENT", "TO", "ATTEMPTS", "CREATED", "ERROR"]
    more = f"deliveries list --limit {limit}"
    print_list(answer, as_json, DeliveryPage, columns, row, empty="no deliveries", more=more)


@deliveries.command()
@click.argument("delivery_id")
@remote
def resend(api: Api, delivery_id: str, as_json: bool) -> None:
    """Send a notification again under the same id, whether or not it arrived. A waiting one is tried now."""
    sent = api.ask("POST", f"/deliveries/{segment(delivery_id)}/resend")
    emit(sent) if as_json else click.echo(f"{sent['id']} is {sent['status']}")
