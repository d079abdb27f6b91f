"""Slack: signed events, answers in threads, and approvals as buttons, against a server that implements its protocol."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest_asyncio

from domain.ids import new_id
from tests.behaviour.channels.slack_server import SIGNING, TOKEN, SlackServer, message, send, slack_server
from tests.support.stack import Stack, calls


@dataclass
class Workspace:
    stack: Stack
    slack: SlackServer
    name: str
    hook: str

    async def event(self, text: str, ts: str, **more: object) -> httpx2.Response:
        answer = await send(self.stack.http, self.hook, message(text, ts, **more))
        assert answer.status_code == 202, answer.text
        return answer


@pytest_asyncio.fixture
async def workspace(stack: Stack) -> AsyncIterator[Workspace]:
    rule = {"permission": "write_file", "action": "ask"}
    definition = {"name": "slack-careful", "description": "Asks.", "prompt": "You are tested.", "tools": ["write_file"]}
    made = await stack.http.put("/agents/slack-careful", json={**definition, "permissions": [rule], "may_ask": True})
    assert made.is_success, made.text
    async with slack_server() as slack:
        name = f"s-{new_id()}"
        body = {
            "kind": "slack",
            "agent": "slack-careful",
            "target": slack.url,
            "signing_secret": SIGNING,
            "token": TOKEN,
        }
        made = await stack.http.put(f"/connectors/{name}", json=body)
        assert made.status_code == 200 and TOKEN not in made.text, made.text
        yield Workspace(stack, slack, name, made.json()["hook"])
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
    incomplete = {"kind": "slack", "agent": "tester", "token": "x"}
    assert (await http.put(f"/connectors/{new_id()}", json=incomplete)).status_code == 422
