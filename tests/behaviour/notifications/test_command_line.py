"""Subscriptions and deliveries from the command line."""

import json
import re

from tests.behaviour.notifications.receivers import Receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.supervision.test_command_line import cli


async def test_subscriptions_are_managed_from_the_command_line(subscribers: Subscribers, receiver: Receiver) -> None:
    stack = subscribers.stack
    added = await cli(stack, "subscriptions", "add", "cli", "webhook", f"{receiver.url}/cli", "--only-named")
    assert added.exit_code == 0 and re.fullmatch(r"whsec_[A-Za-z0-9+/=]{44}\n", added.stdout), added.output
    again = await cli(stack, "subscriptions", "add", "cli", "webhook", f"{receiver.url}/cli")
    assert again.exit_code == 5 and "name-taken" in again.stderr
    inside = await cli(stack, "subscriptions", "add", "x", "push", "https://10.0.0.1/")
    assert inside.exit_code == 5 and "private" in inside.stderr
    assert (await cli(stack, "subscriptions", "add", "x", "pigeon", "https://a.example/")).exit_code == 2

    done = await cli(stack, "run", "tester", "[[script:say text=fine]]", "--notify", "cli", "--json")
    assert done.exit_code == 0, done.output
    [request] = await receiver.got("/cli")
    assert request.signed_by(added.stdout.strip())
    listed = (await cli(stack, "subscriptions", "list")).stdout
    assert re.search(r"^cli +webhook +active +if named +all +http", listed, re.MULTILINE)
    [delivery] = json.loads((await cli(stack, "deliveries", "list", "--to", "cli", "--json")).stdout)["items"]
    assert delivery["id"] == request.headers["webhook-id"]
    assert f"{delivery['id']}  " in (await cli(stack, "deliveries", "list", "--task", delivery["task_id"])).stdout

    assert (await cli(stack, "deliveries", "resend", delivery["id"])).exit_code == 0
    await receiver.got("/cli", 2)
    rotated = await cli(stack, "subscriptions", "rotate", "cli")
    assert (await cli(stack, "subscriptions", "test", "cli")).exit_code == 0
    last = (await receiver.got("/cli", 3))[-1]
    assert last.signed_by(rotated.stdout.strip()) and last.signed_by(added.stdout.strip())
    assert "cli is active" in (await cli(stack, "subscriptions", "enable", "cli")).stdout
    assert (await cli(stack, "subscriptions", "remove", "cli")).exit_code == 0
    assert (await cli(stack, "subscriptions", "remove", "cli")).exit_code == 4
    assert "(removed)" in (await cli(stack, "deliveries", "list", "--task", delivery["task_id"])).stdout
    assert (await cli(stack, "deliveries", "resend", delivery["id"])).exit_code == 5
    assert "no subscriptions" in (await cli(stack, "subscriptions", "list")).stderr
