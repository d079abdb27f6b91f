"""`errand deliveries`: which notifications were sent, and sending one again."""

import click
from errand.models import DeliveryPage

from cli.api import Api, parse, segment
from cli.commands.subscriptions import all_subscriptions, find_subscription
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, table
from domain.notifications import DeliveryStatus

_COLOURS = {"delivered": "green", "failed": "red"}


@click.group()
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
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Deliveries on one page.")
@click.option("--cursor", help="The cursor of the next page.")
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
    if as_json:
        emit(answer)
        return
    page = parse(DeliveryPage, answer)
    if not page.items:
        note("no deliveries")
        return
    names = {subscription.id: subscription.name for subscription in all_subscriptions(api)}
    rows = [
        [
            delivery.id,
            click.style(delivery.status, fg=_COLOURS.get(delivery.status, "cyan")),
            delivery.event,
            names.get(delivery.subscription_id, "(removed)"),
            str(delivery.attempts),
            age(delivery.created_at),
            delivery.last_error or "",
        ]
        for delivery in page.items
    ]
    table(["DELIVERY", "STATUS", "EVENT", "TO", "ATTEMPTS", "CREATED", "ERROR"], rows)
    if page.next_cursor:
        note(f"more: {PROGRAM} deliveries list --limit {limit} --cursor {page.next_cursor}")


@deliveries.command()
@click.argument("delivery_id")
@remote
def resend(api: Api, delivery_id: str, as_json: bool) -> None:
    """Send a notification again under the same id, whether or not it arrived. A waiting one is tried now."""
    sent = api.ask("POST", f"/deliveries/{segment(delivery_id)}/resend")
    emit(sent) if as_json else click.echo(f"{sent['id']} is {sent['status']}")
