"""Slack, e-mail and push: real receivers get readable text, into which an agent cannot inject anything."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from activities.egress import Fetcher
from activities.notifications.channels import Email, Envelope, MailServer, build_channels
from domain.notifications import ChannelName, Notice, SendError
from tests.behaviour.notifications.receivers import Mail, Receiver, smtp_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.notifications.test_feed import at_rest, by_socket, by_sse, page
from tests.behaviour.supervision.people import answered, ask
from tests.support.launch import free_port
from tests.support.stack import calls, eventually


@pytest_asyncio.fixture
async def mail(subscribers: Subscribers) -> AsyncIterator[Mail]:
    async with smtp_receiver(subscribers.stack.settings.smtp_port) as running:
        yield running


def envelope(target: str, type: str = "task_completed", **data: str) -> Envelope:
    return Envelope(
        "01jd2s0p8m3kq5w7x9z1b2c4d6", target, Notice(type=type, timestamp="now", data=data).model_dump_json().encode()
    )


def test_every_channel_has_a_file_and_a_line() -> None:
    assert set(build_channels(Fetcher(), None)) == set(ChannelName)


async def test_slack_and_push_get_readable_text(subscribers: Subscribers, receiver: Receiver) -> None:
    slack = await subscribers.subscribe(f"{receiver.url}/services/T/B/x", "slack", every_task=False)
    push = await subscribers.subscribe(f"{receiver.url}/topic", "push", every_task=False)
    assert slack["secret"] is None and push["secret"] is None
    config = {"notify": [slack["name"], push["name"]]}
    task_id = await subscribers.stack.submit(
        calls(ask("<!channel> & <b>?")), "asker", title="Größe prüfen", config=config
    )
    [said] = await receiver.got("/services/T/B/x")
    text = said.json["text"]
    assert text.startswith("*Waits for you: Größe prüfen*\n&lt;!channel&gt; &amp; &lt;b&gt;?\n")
    assert f"errand answer {task_id}" in text
    [pushed] = await receiver.got("/topic")
    assert pushed.headers["priority"] == "high" and pushed.headers["title"].startswith("=?utf-8?")
    assert pushed.body.decode().startswith("<!channel> & <b>?\n")
    await answered(subscribers.stack, task_id, "yes")
    _, ended = await receiver.got("/topic", 2)
    assert ended.headers["priority"] == "default"


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
    task_id = await stack.submit(calls(ask("Which port?")), "asker", title="Count", config=config)
    await stack.seen(task_id, "input_required")
    for kind in ("webhook", "slack", "push"):
        await receiver.got(f"/{kind}")
    await subscribers.pass_time(stack.session(task_id), hours=25)
    [up] = await receiver.got("/boss")
    assert (up.json["type"], up.json["data"]["question"]) == ("input_escalated", "Which port?")
    await answered(stack, task_id, "80")

    hook = await receiver.got("/webhook", 2)
    assert [one.json["type"] for one in hook] == events
    assert [one.json["data"]["status"] for one in hook] == ["input_required", "completed"]
    slack = [one.json["text"] for one in await receiver.got("/slack", 2)]
    assert slack[0].startswith("*Waits for you: Count*\nWhich port?") and slack[1].startswith("*Completed: Count*")
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


async def test_an_email_arrives(subscribers: Subscribers, receiver: Receiver, mail: Mail) -> None:
    made = await subscribers.subscribe("ann@example.org", "email", every_task=False)
    assert made["target"] == "a…@example.org"
    await subscribers.stack.run("[[script:say text=fine]]", title="Count\nBcc: all", config={"notify": ["email"]})

    async def arrived() -> bool:
        return bool(mail.messages)

    await eventually(arrived, what="the e-mail")
    [message] = mail.messages
    assert (message["To"], message["From"]) == ("ann@example.org", "errand@localhost")
    assert message["Subject"] == "Completed: Count Bcc: all" and message["Bcc"] is None
    delivery = await subscribers.delivery(made, status="delivered")
    assert message["Message-ID"] == f"<{delivery['id']}@errand>"
    assert message.get_content().splitlines()[:2] == ["fine", "Reason: goal_reached"]


@pytest.mark.parametrize("server", [None, MailServer("127.0.0.1", free_port(), "x@example.org", tls="none")])
async def test_unreachable_mail_server_is_retried(server: MailServer | None) -> None:
    with pytest.raises(SendError) as caught:
        await Email(server).send(envelope("ann@example.org", title="x"))
    assert not caught.value.gone and "ann" not in str(caught.value)


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
            await build_channels(fetcher, None)[kind].send(envelope(f"{receiver.url}/canary", title="x"))
        assert str(caught.value) == "It answered 500."
    assert "canary" not in repr(envelope("https://canary/", title="x"))
    assert json.loads(receiver.at("/canary")[0].body)["type"] == "task_completed"
