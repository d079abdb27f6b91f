"""Slack, e-mail and push: real receivers get readable text, into which an agent cannot inject anything."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from activities.notifications.channels import channels
from activities.notifications.channels.channel import Envelope
from activities.notifications.channels.email import Email, MailServer
from activities.tools.support.egress import Fetcher
from domain.notification import ChannelName, Notice, SendError
from tests.behaviour.notifications.receivers import Mail, Receiver, smtp_receiver
from tests.behaviour.notifications.subscribers import Subscribers
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
    assert set(channels(Fetcher(), None)) == set(ChannelName)


@pytest.mark.proves("S1-27")
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
            await channels(fetcher, None)[kind].send(envelope(f"{receiver.url}/canary", title="x"))
        assert str(caught.value) == "It answered 500."
    assert "canary" not in repr(envelope("https://canary/", title="x"))
    assert json.loads(receiver.at("/canary")[0].body)["type"] == "task_completed"
