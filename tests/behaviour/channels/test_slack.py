"""Slack and e-mail: signed events, answers in threads, and approvals as buttons, against servers of their protocols."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest
import pytest_asyncio

from domain.ids import new_id
from tests.behaviour.channels.people import Service
from tests.behaviour.channels.slack_server import SIGNING, TOKEN, SlackServer, message, send, slack_server
from tests.behaviour.notifications.receivers import http_receiver, smtp_receiver
from tests.support.stack import Stack, calls, eventually

SLOW = 40  # answers; the shared pool of Python has at most 32 threads


@dataclass
class Workspace:
    stack: Stack
    slack: SlackServer
    name: str
    id: str
    hook: str

    async def event(self, text: str, ts: str, **more: object) -> httpx2.Response:
        answer = await send(self.stack.http, self.hook, message(text, ts, **more))
        assert answer.status_code == 202, answer.text
        return answer

    async def refused(self) -> str:
        """Why the answer to the last message was not accepted, as the API shows it."""

        async def look() -> str | None:
            params = {"status": "pending", "subscription_id": self.id}
            found = (await self.stack.http.get("/deliveries", params=params)).json()["items"]
            return next((one["last_error"] for one in found if one["last_error"]), None)

        return await eventually(look, what="a failed attempt")


@pytest_asyncio.fixture
async def workspace(stack: Stack) -> AsyncIterator[Workspace]:
    rule = {"permission": "write_file", "action": "ask"}
    definition = {"name": "slack-careful", "description": "Asks.", "prompt": "You are tested.", "tools": ["write_file"]}
    made = await stack.http.put("/agents/slack-careful", json={**definition, "permissions": [rule], "may_ask": True})
    assert made.is_success, made.text
    async with slack_server(stack.settings.slack_url) as slack:
        name = f"s-{new_id()}"
        body = {"kind": "slack", "agent": "slack-careful", "signing_secret": SIGNING, "token": TOKEN}
        made = await stack.http.put(f"/connectors/{name}", json=body)
        assert made.status_code == 200 and TOKEN not in made.text, made.text
        yield Workspace(stack, slack, name, made.json()["id"], made.json()["hook"])
        await stack.http.delete(f"/connectors/{name}")


async def test_an_event_is_answered_once_in_its_thread(workspace: Workspace) -> None:
    slack = workspace.slack
    first = await workspace.event("[[script:say text=<!channel>]]", "1700000000.000100")
    again = await workspace.event("[[script:say text=<!channel>]]", "1700000000.000100")  # Slack repeats the event
    [session], [same] = first.json()["accepted"], again.json()["accepted"]
    assert same["duplicate"] and same["session_id"] == session["session_id"]
    [posted] = await slack.got(1)
    assert (posted["channel"], posted["thread_ts"]) == ("C1", "1700000000.000100")
    assert posted["text"] == "&lt;!channel&gt;"  # the reply mentions nobody
    slack.refuse.append("ratelimited")
    await workspace.event("[[script:say text=two]]", "1700000001.000100", thread_ts="1700000000.000100")
    _, second = await slack.got(2)
    assert (second["text"], second["thread_ts"]) == ("two", "1700000000.000100")
    for ignored in ({"bot_id": "B1"}, {"subtype": "message_changed"}):
        said = await workspace.event("[[script:say text=loop]]", f"17{new_id()}", **ignored)
        assert said.json()["accepted"] == []


async def test_an_approval_is_given_by_a_button(workspace: Workspace) -> None:
    slack, http = workspace.slack, workspace.stack.http
    write = calls(("write_file", {"path": "a.txt", "content": "x"}))
    said = (await workspace.event(write, "1700000002.000100")).json()["accepted"][0]
    [asked] = await slack.got(1)
    assert "blocks" in asked, asked
    approve, deny = asked["blocks"][1]["elements"]
    assert (approve["action_id"], deny["action_id"]) == ("errand_approve", "errand_deny")
    action = {"action_id": "errand_approve", "value": approve["value"]}
    pressed = {"type": "block_actions", "channel": {"id": "C1"}, "user": {"id": "U1"}, "actions": [action]}
    stranger = await send(http, workspace.hook, {**pressed, "user": {"id": "U2"}})
    assert stranger.status_code == 404
    answered = await send(http, workspace.hook, pressed)
    assert answered.json()["answered"] == 1, answered.text
    assert (await send(http, workspace.hook, pressed)).json()["answered"] == 0  # the button is pressed a second time
    assert (await workspace.stack.wait(said["session_id"]))["status"] == "completed"
    assert (workspace.stack.workspace(said["session_id"]) / "a.txt").exists()
    await slack.got(2)


async def test_the_address_is_verified_and_forgeries_are_refused(workspace: Workspace) -> None:
    http, hook = workspace.stack.http, workspace.hook
    challenge = {"type": "url_verification", "challenge": "3eZbrw1a"}
    verified = await send(http, hook, challenge)
    assert (verified.status_code, verified.text) == (200, "3eZbrw1a")
    forged = [
        await send(http, hook, challenge, secret="wrong"),
        await send(http, hook, challenge, age=301),
        await http.post(hook, json=challenge),
    ]
    for answer in forged:
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:errand:problem:bad-signature")
    assert (await send(http, hook, {"type": "event_callback"})).status_code == 422


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"signing_secret": None}, "/signing_secret"),
        ({"target": "http://127.0.0.1:1/api/"}, "/target"),  # the operator allows this host, but for webhooks
    ],
)
async def test_a_connector_without_secrets_or_with_an_address_of_its_own_is_refused(
    stack: Stack, wrong: dict[str, str | None], pointer: str
) -> None:
    name = f"s-{new_id()}"
    body = {"kind": "slack", "agent": "tester", "signing_secret": SIGNING, "token": TOKEN, **wrong}
    refused = await stack.http.put(f"/connectors/{name}", json=body)
    assert refused.status_code == 422 and [one["pointer"] for one in refused.json()["errors"]] == [pointer]
    assert name not in (await stack.http.get("/connectors")).text


async def test_a_redirect_is_not_followed(workspace: Workspace) -> None:
    async with http_receiver() as elsewhere:

        async def redirect(writer: asyncio.StreamWriter) -> None:
            place = f"{elsewhere.url}/secrets"
            writer.write(f"HTTP/1.1 307 Here\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()

        workspace.slack.misbehave = redirect
        await workspace.event("[[script:say text=moved]]", "1700000003.000100")
        assert await workspace.refused() == "It answered 307."
        assert elsewhere.requests == []


@pytest.mark.parametrize("packed", [False, True])
async def test_a_huge_answer_is_cut(workspace: Workspace, packed: bool) -> None:
    sent = 0
    piece = gzip.compress(b" " * 50_000_000) if packed else b" " * 65_536
    encoding = "Content-Encoding: gzip\r\n" if packed else ""

    async def flood(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(f"HTTP/1.1 200 OK\r\n{encoding}Content-Length: 400000000\r\n\r\n".encode())
        while sent < 400_000_000:
            writer.write(piece)
            await writer.drain()
            sent += len(piece)

    workspace.slack.misbehave = flood
    await workspace.event("[[script:say text=flood]]", "1700000004.000100")
    assert await workspace.refused() == "Slack did not answer properly."
    assert sent < 50_000_000  # what the sockets hold, and no more


async def test_a_slow_slack_stalls_no_other_tenant(workspace: Workspace) -> None:
    """More answers than the worker has threads are held back byte by byte; a task that needs one ends all the same."""
    slack, stack, done = workspace.slack, workspace.stack, asyncio.Event()

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        while not done.is_set() and not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 5)

    slack.misbehave = trickle
    for number in range(SLOW):
        await workspace.event("[[script:say text=slow]]", f"170000000{number}.000200", user=f"U{number}")

    async def all_held() -> bool:
        return slack.held == SLOW

    await eventually(all_held, what="all answers are held")
    async with asyncio.timeout(10):
        ended = await stack.run(calls(("write_file", {"path": "a.txt", "content": "x"}), ("list_files", {"path": "."})))
    assert ended["status"] == "completed"
    assert slack.held > 0, "they were no longer held"
    assert await workspace.refused() == "No complete answer within 20 seconds."
    done.set()


async def test_an_answer_is_mailed_once_to_the_person_that_wrote(service: Service) -> None:
    name = f"mail-{new_id()}"
    made = await service.put(name, kind="email")
    given = {"connector": name, "channel": "support"}
    async with smtp_receiver(service.stack.settings.smtp_port) as mail:
        mail.refuse.append("451 try again later")
        said = await service.say(
            "[[script:say text=.hidden]]", user="ann@example.org", thread="Re: my order", message_id="m1", **given
        )
        [message] = await mail.got(1)
        assert mail.recipients == ["ann@example.org"] and mail.attempts == 2
        assert (message["To"], message["Subject"], message["Auto-Submitted"]) == (
            *("ann@example.org", "Re: my order", "auto-generated"),
        )
        assert message["Message-ID"] and message.get_content().rstrip() == ".hidden"  # the leading dot is not lost
        again = await service.say("[[script:say text=x]]", user="ann@example.org", message_id="m1", **given)
        assert again["duplicate"] and again["session_id"] == said["session_id"]
        await service.say("[[script:say text=two]]", user="bob@example.org", **given)
        _, second = await mail.got(2)
        assert (second["To"], second["Subject"]) == ("bob@example.org", "Your message")
        assert second["Message-ID"] != message["Message-ID"]
        refused = await service.post("x", user="ann@example.org,eve@example.org", **given)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/user_id")
        injected = await service.post("x", user="ann@example.org", thread="Hi\r\nBcc: eve@example.org", **given)
        assert injected.status_code == 422
    assert len(mail.messages) == 2
    # an e-mail connector receives no messages
    assert (await service.stack.http.post(made["hook"], json={})).status_code == 404
