"""Slack, e-mail and push: real receivers get readable text, without a secret, into which an agent injects nothing."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest
import pytest_asyncio

from activities.egress import Fetcher
from activities.notifications.channels import Email, Envelope, MailServer, build_channels
from domain.notifications import ChannelName, Notice, SendError
from tests.behaviour.api.conftest import problem, serving
from tests.behaviour.notifications.receivers import Mail, Receiver, smtp_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.notifications.test_feed import at_rest, by_socket, by_sse, page
from tests.behaviour.supervision.people import answered, ask
from tests.support.secrets import secrets_found
from tests.support.stack import calls


@pytest_asyncio.fixture
async def mail(subscribers: Subscribers) -> AsyncIterator[Mail]:
    async with smtp_receiver(subscribers.stack.settings.smtp_port) as running:
        yield running


def envelope(target: str, type: str = "task_completed", **data: str) -> Envelope:
    return Envelope(
        "01jd2s0p8m3kq5w7x9z1b2c4d6", target, Notice(type=type, timestamp="now", data=data).model_dump_json().encode()
    )


@pytest.mark.proves("S1-27")
async def test_question_escalation_and_end_reach_callers_and_observers_by_every_channel(
    subscribers: Subscribers, receiver: Receiver, mail: Mail
) -> None:
    """One task, of which a webhook, Slack, e-mail, push, server-sent events, a WebSocket and a page of the feed show
    that it waits, that nobody answered, and how it ended."""
    stack = subscribers.stack
    events = ["input_required", "task_completed"]
    sent = {kind: f"{receiver.url}/{kind}" for kind in ("webhook", "slack", "push")} | {"email": "ann@example.org"}
    made = {
        kind: await subscribers.subscribe(target, kind, every_task=False, events=events)
        for kind, target in sent.items()
    }
    boss = await subscribers.subscribe(f"{receiver.url}/boss", every_task=False)
    start = await at_rest(stack)
    config = {
        "notify": [one["name"] for one in made.values()],
        "ttl": 72 * 3_600_000,
        "escalate_after": 24 * 3_600_000,
        "escalate_to": boss["name"],
    }
    task_id = await stack.submit(calls(ask("<!channel>, which port?")), "asker", title="Count", config=config)
    await stack.seen(task_id, "input_required")
    for kind in ("webhook", "slack", "push"):
        await receiver.got(f"/{kind}")
    await subscribers.pass_time(stack.session(task_id), hours=25)
    [up] = await receiver.got("/boss")
    assert (up.json["type"], up.json["data"]["question"]) == ("input_escalated", "<!channel>, which port?")
    await answered(stack, task_id, "80")

    hook = await receiver.got("/webhook", 2)
    assert [one.json["type"] for one in hook] == events
    assert [one.json["data"]["status"] for one in hook] == ["input_required", "completed"]
    slack = [one.json["text"] for one in await receiver.got("/slack", 2)]
    assert slack[0].startswith("*Waits for you: Count*\n&lt;!channel&gt;, which port?")  # the text mentions nobody
    assert slack[1].startswith("*Completed: Count*")
    pushed = [one.headers["title"] for one in await receiver.got("/push", 2)]
    assert pushed == ["Waits for you: Count", "Completed: Count"]
    assert [one["Subject"] for one in await mail.got(2)] == ["Waits for you: Count", "Completed: Count"]

    whole = [one for one in (await page(stack, start))["items"] if one["session_id"] == task_id]
    shown = ["session_started", "input_required", "input_escalated", "input_received", "session_completed"]
    assert [one["type"] for one in whole] == shown
    last = whole[-1]["number"] - start
    for read in (by_sse, by_socket):
        found = await read(stack, start, last)
        assert [one for one in found if one["session_id"] == task_id] == whole, read.__name__


async def test_an_email_without_encryption_is_not_sent_where_it_was_promised(
    mail: Mail, subscribers: Subscribers
) -> None:
    server = MailServer("127.0.0.1", subscribers.stack.settings.smtp_port, "x@example.org", "me", "canary", "starttls")
    with pytest.raises(SendError) as caught:
        await Email(server).send(envelope("ann@example.org", title="x"))
    assert mail.messages == [] and "canary" not in str(caught.value) + repr(server)


async def test_delivery_errors_name_neither_address_nor_secret(receiver: Receiver) -> None:
    receiver.answers["/canary"] = ["500 Oh"]
    fetcher = Fetcher(["127.0.0.1"])
    for kind in (ChannelName.WEBHOOK, ChannelName.SLACK, ChannelName.PUSH):
        with pytest.raises(SendError) as caught:
            await build_channels(fetcher, None)[kind](envelope(f"{receiver.url}/canary", title="x"))
        assert str(caught.value) == "It answered 500."
    assert "canary" not in repr(envelope("https://canary/", title="x"))
    assert json.loads(receiver.at("/canary")[0].body)["type"] == "task_completed"


TOKEN = "canary-81f2c40e"


async def test_no_secret_is_stored_or_shown(subscribers: Subscribers, receiver: Receiver) -> None:
    receiver.answers[f"/{TOKEN}"] = ["500 Oh", "204 No Content"]
    made = await subscribers.subscribe(f"{receiver.url}/{TOKEN}", every_task=False)  # only for the task that names it
    rotated = (await subscribers.stack.http.post(f"/subscriptions/{made['id']}/rotate")).json()
    secrets = [TOKEN, made["secret"], rotated["secret"]]
    await subscribers.stack.run("[[script:say text=x]]", config={"notify": [made["name"]]})
    pending = await subscribers.delivery(made, attempts=1)
    await subscribers.pass_time(subscribers.workflow(pending), seconds=6)
    await subscribers.delivery(made, status="delivered")
    for path in ("/subscriptions", "/deliveries"):
        shown = (await subscribers.stack.http.get(path)).text
        assert not [secret for secret in secrets if secret in shown], path
    assert await secrets_found(subscribers.stack, [secret.encode() for secret in secrets]) == []


async def test_without_a_key_no_secret_is_stored(subscribers: Subscribers) -> None:
    """An API without ERRAND_SECRET_KEYS refuses subscriptions and secret variables, and names the setting."""
    settings = replace(
        subscribers.stack.settings, database_url=subscribers.stack.database_url, secret_keys=(), local_token=None
    )
    async with serving(settings) as url, httpx2.AsyncClient(base_url=url) as client:
        for channel, target in (("webhook", "https://x.example.org/t"), ("email", "ops@example.org")):
            body = {"name": f"no-key-{channel}", "channel": channel, "target": target}
            refused = await client.post("/subscriptions", json=body)
            assert "ERRAND_SECRET_KEYS" in problem(refused, 409, "no-secret-key")["detail"]
        definition = {"name": "locked-out", "description": "x", "prompt": "x", "tools": []}
        secret = {"pin": {"description": "x", "kind": "secret"}, "city": "where"}
        assert (await client.put("/agents/locked-out", json={**definition, "variables": secret})).is_success
        task = {"agent": "locked-out", "input": "x", "context": {"variables": {"pin": "0000", "city": "x"}}}
        problem(await client.post("/tasks", json=task), 409, "no-secret-key")
