"""Answers are sent once, signed, and only through the connector of their own address."""

import time
from typing import Any

import pytest

from domain.ids import new_id
from tests.behaviour.channels.people import Service
from tests.behaviour.conversations.talk import agent, chain
from tests.behaviour.schedules.clock import create, fired


def say(text: str) -> str:
    return f"[[script:say text={text}]]"


@pytest.mark.proves("S2-02")
async def test_a_signed_message_is_answered_by_a_signed_reply(service: Service) -> None:
    body = {"channel_id": "room", "user_id": "ann", "text": say("hello"), "message_id": "m1", "thread": "t1"}
    accepted = await service.signed(body)
    assert accepted.status_code == 202, accepted.text
    [said] = accepted.json()["accepted"]
    [reply] = await service.replies(1)
    assert reply.signed_by(service.secret)
    assert reply.json["type"] == "reply"
    assert reply.json["data"] == {
        **{"connector": service.name, "channel_id": "room", "user_id": "ann", "thread": "t1", "in_reply_to": "m1"},
        **{"conversation_id": said["conversation_id"], "task_id": said["session_id"], "agent": "tester"},
        **{"status": "completed", "text": "hello"},
    }
    repeated = await service.signed(body)
    assert repeated.json()["accepted"][0]["duplicate"]


async def test_replies_are_sent_to_their_own_channel_only(service: Service) -> None:
    other = f"o-{new_id()}"
    await service.put(other, target=f"{service.receiver.url}/other")
    for number in range(3):
        await service.say(say(f"here{number}"), user="ann")
        await service.say(say(f"there{number}"), user="ann", connector=other)
        await service.say(say(f"bob{number}"), user="bob")
    mine, theirs = await service.replies(6), await service.replies(3, "/other")
    assert {(one.json["data"]["user_id"], one.json["data"]["text"]) for one in mine} == {
        (user, f"{text}{number}") for user, text in (("ann", "here"), ("bob", "bob")) for number in range(3)
    }
    assert {one.json["data"]["text"] for one in theirs} == {f"there{number}" for number in range(3)}
    assert len({one.headers["webhook-id"] for one in (*mine, *theirs)}) == 9


@pytest.mark.exactly_once
async def test_a_reply_is_repeated_with_the_same_id_until_it_is_accepted(service: Service) -> None:
    service.receiver.answers["/in"] = ["503 Service Unavailable", "204 No Content"]
    await service.say(say("again"))
    first, second = await service.replies(2)
    assert (first.headers["webhook-id"], first.body) == (second.headers["webhook-id"], second.body)


async def test_a_failure_is_reported_to_the_person(service: Service) -> None:
    said = await service.say("[[fault:auth times=always]]")
    await service.ended(said["session_id"])
    [reply] = await service.replies(1)
    assert reply.json["data"]["text"].startswith("This could not be answered: ")
    assert reply.json["data"]["status"] == "failed"


@pytest.mark.proves("S2-B23")
async def test_an_agent_that_has_nothing_to_say_sends_nothing(service: Service) -> None:
    part = ("async_task", {"agent": "helper", "prompt": say("part"), "description": "a part"})
    for definition in (agent("helper", mode="subagent"), agent("delegator", "helper")):
        assert (await service.stack.http.put(f"/agents/{definition['name']}", json=definition)).is_success
    await service.put(service.name, agent="delegator", target=f"{service.receiver.url}/in")
    quiet = await service.say(chain([part], last="NO_MESSAGE"))
    await service.ended(quiet["session_id"])
    there: dict[str, Any] = {"conversation_id": quiet["conversation_id"], "silent_reply": "Nothing to do."}
    beats = [await create(service.stack, say(text), **there) for text in ('"Nothing to do."', "Alarm")]
    silent, loud = [(await fired(service.stack, beat["id"]))["task_id"] for beat in beats]
    assert [(await service.ended(one)).output for one in (silent, loud)] == ["Nothing to do.", "Alarm"]
    await service.say(say("spoken"))
    replies = await service.replies(2)
    assert {reply.json["data"]["text"] for reply in replies} == {"Alarm", "spoken"}
    for task_id in (quiet["session_id"], silent):
        found = await service.stack.http.get("/deliveries", params={"task_id": task_id})
        assert found.json()["items"] == []


async def test_bad_signatures_and_old_requests_are_refused(service: Service) -> None:
    body = {"channel_id": "room", "user_id": "eve", "text": say("x")}
    wrong = [
        await service.signed(body, secret="whsec_" + "QUFB" * 8),
        await service.signed(body, at=int(time.time()) - 301),
        await service.signed(body, at=int(time.time()) + 301),
        await service.stack.http.post(service.hook, json=body),
    ]
    for answer in wrong:
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:errand:problem:bad-signature"), answer.text
    assert (await service.stack.http.post(f"/hooks/{new_id()}", json=body)).status_code == 404
    assert (await service.signed("no object")).status_code == 422
    assert (await service.stack.http.get(f"/channels/{service.name}/room/eve")).status_code == 404


async def test_connectors_are_checked_listed_changed_and_removed(service: Service) -> None:
    http, name = service.stack.http, f"k-{new_id()}"
    for wrong in (
        {"kind": "pigeon"},
        {"agent": "nobody"},
        {"target": "http://example.org/x"},
        {"token": "x"},
        {"debounce_ms": -1},
        {"kind": "email", "target": "https://example.org"},
    ):
        refused = await http.put(f"/connectors/{name}", json={"kind": "webhook", "agent": "tester", **wrong})
        assert refused.status_code in (404, 422), (wrong, refused.text)
    assert (await http.put("/connectors/No", json={"kind": "webhook", "agent": "tester"})).status_code == 422
    made = await service.put(name)
    changed = await service.put(name, debounce_ms=100)
    assert changed["id"] == made["id"] and changed["secret"] is None and changed["debounce_ms"] == 100
    listed = (await http.get("/connectors")).json()["items"]
    assert made["secret"] not in str(listed) and name in [one["name"] for one in listed]
    assert (await http.put(f"/connectors/{name}", json={"kind": "email", "agent": "tester"})).status_code == 409
    assert (await http.delete(f"/connectors/{name}")).status_code == 204
    assert (await http.get(f"/connectors/{name}")).status_code == 404


async def test_answers_of_a_removed_connector_fail_and_a_new_connector_of_its_name_sends_only_its_own(
    service: Service,
) -> None:
    http = service.stack.http
    service.receiver.answers["/in"] = ["503 Service Unavailable"]
    pending = await service.say(say("pending"))
    await service.replies(1)  # the receiver refuses the answer, so it would be retried
    running = await service.say("[[script:say words=20 delay=0.1]]")
    await service.stack.seen(running["session_id"], "message_delta")
    assert (await http.delete(f"/connectors/{service.name}")).status_code == 204
    assert (await service.post(say("x"))).status_code == 404
    assert (await service.ended(running["session_id"])).status == "completed"
    await service.put(service.name, target=f"{service.receiver.url}/new")
    after = await service.say(say("after"))
    assert after["conversation_id"] == pending["conversation_id"]
    [reply] = await service.replies(1, "/new")
    assert reply.json["data"]["text"] == "after"
    sent = [
        (await http.get("/deliveries", params={"task_id": one["session_id"]})).json()["items"]
        for one in (pending, running)
    ]
    assert [[(one["status"], one["last_error"]) for one in items] for items in sent] == [
        [("failed", "The connector was removed.")],
        [],
    ]


async def test_a_message_that_is_too_long_is_refused(service: Service) -> None:
    text = "x" * (service.stack.settings.max_input_chars + 1)
    for refused in (
        await service.post(text, user="long"),
        await service.signed({"channel_id": "room", "user_id": "long", "text": text}),
    ):
        assert (refused.status_code, refused.json()["type"]) == (413, "urn:errand:problem:input-too-long")
    assert (await service.stack.http.get(f"/channels/{service.name}/room/long")).status_code == 404
