"""`errand deliveries`: what was told to whom, and sending it again."""

import click

from cli.client.api import Api, part
from cli.commands.subscriptions import named
from cli.options import remote
from cli.render.output import PROGRAM, age, emit, note, table
from domain.notification import DeliveryStatus

_COLOURS = {"delivered": "green", "failed": "red"}


@click.group()
def deliveries() -> None:
    """What subscriptions were told, how often it was tried, and why it did not arrive.

    \b
    Examples:
      ./errand deliveries list --status failed
      ./errand deliveries list --to ops --json | jq -r '.items[].id'
      ./errand deliveries resend ID
    """


@deliveries.command("list")
@click.option("--status", type=click.Choice([status.value for status in DeliveryStatus]), help="Only these.")
@click.option("--to", "name", help="Only those of this subscription.")
@click.option("--task", "task_id", help="Only those about this task.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Deliveries on one page.")
@click.option("--cursor", help="Where the last page ended.")
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
    """List deliveries, the newest first."""
    subscription_id = named(api, name)["id"] if name else None
    page = api.get(
        "/deliveries", status=status, subscription_id=subscription_id, task_id=task_id, limit=limit, cursor=cursor
    )
    if as_json:
        emit(page)
        return
    if not page["items"]:
        note("no deliveries")
        return
    names = {one["id"]: one["name"] for one in api.get("/subscriptions")["items"]}
    rows = [
        [
            one["id"],
            click.style(one["status"], fg=_COLOURS.get(one["status"], "cyan")),
            one["event"],
            names.get(one["subscription_id"], "(removed)"),
            str(one["attempts"]),
            age(one["created_at"]),
            one["last_error"] or "",
        ]
        for one in page["items"]
    ]
    table(["DELIVERY", "STATUS", "EVENT", "TO", "TRIED", "CREATED", "ERROR"], rows)
    if page["next_cursor"]:
        note(f"more: {PROGRAM} deliveries list --limit {limit} --cursor {page['next_cursor']}")


@deliveries.command()
@click.argument("delivery_id")
@remote
def resend(api: Api, delivery_id: str, as_json: bool) -> None:
    """Send it again, with the same id, whether or not it arrived. One that waits is tried at once."""
    sent = api.send("POST", f"/deliveries/{part(delivery_id)}/resend").json()
    emit(sent) if as_json else click.echo(f"{sent['id']} is {sent['status']}")
