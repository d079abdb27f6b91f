"""Answers are sent once, signed, and only through the connector of their own address."""

import asyncio
import time
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from domain.ids import new_id
from store import notices
from tests.behaviour.channels.people import Service
from tests.behaviour.conversations.talk import agent, chain, say
from tests.behaviour.notifications.receivers import Request
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.schedules.clock import create, fired
from tests.support.stack import eventually


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


async def said_in_order(service: Service, *texts: str) -> list[dict[str, Any]]:
    """Let an agent say these texts to one person, each once it has said the one before."""
    accepted = []
    for text in texts:
        accepted.append(await service.say(say(text)))
        await service.ended(accepted[-1]["session_id"])
    return accepted


def texts(requests: list[Request]) -> list[str]:
    return [request.json["data"]["text"] for request in requests]


def lane(service: Service, said: dict[str, Any]) -> "WorkflowHandle[Any, Any]":
    return service.stack.client.get_workflow_handle(f"delivery/{said['conversation_id']}")


async def test_a_reply_that_is_refused_once_is_not_overtaken(service: Service) -> None:
    service.receiver.answers["/in"] = ["500 Oh", "500 Oh", "204 No Content"]
    await said_in_order(service, "one", "two", "three")
    found = texts(await service.replies(5))
    assert found == ["one", "one", "one", "two", "three"]
    sent = service.receiver.at("/in")[:3]
    assert len({(request.headers["webhook-id"], request.body) for request in sent}) == 1


async def test_replies_to_other_addresses_do_not_wait_for_one_that_is_refused(service: Service) -> None:
    service.receiver.refuse = lambda request: "500 Oh" if request.json["data"]["user_id"] == "ann" else None
    await said_in_order(service, "one")
    await service.replies(1)
    await service.say(say("other"), user="bob")
    assert texts(await service.replies(2))[-1] == "other"


@pytest.mark.parametrize("refusal", ["410 Gone", "500 Oh"])
async def test_a_reply_that_fails_permanently_makes_way_with_a_notice(service: Service, refusal: str) -> None:
    stack, watcher = service.stack, Subscribers(service.stack)
    made = await watcher.subscribe(f"{service.receiver.url}/ops", events=["reply_failed"])
    before = (await notices.ends(stack.pool, "default"))[1]
    service.receiver.refuse = lambda request: (
        refusal if request.path == "/in" and request.json["data"]["text"] == "one" else None
    )
    first, *_ = await said_in_order(service, "one", "two", "three")
    if refusal == "500 Oh":
        await service.replies(3)  # each later reply causes another attempt
        assert set(texts(service.receiver.at("/in"))) == {"one"}
        await watcher.pass_time(lane(service, first), hours=73)

    async def arrived() -> bool:
        return texts(service.receiver.at("/in"))[-2:] == ["two", "three"]

    await eventually(arrived, what="the others arrive in order")
    assert set(texts(service.receiver.at("/in"))[:-2]) == {"one"}
    [failed] = (await stack.http.get("/deliveries", params={"task_id": first["session_id"]})).json()["items"]
    assert (failed["status"], failed["last_error"]) == ("failed", f"It answered {refusal[:3]}.")
    feed = (
        await stack.http.get("/notifications", params={"after": before}, headers={"accept": "application/json"})
    ).json()
    [notice] = [one for one in feed["items"] if one["type"] == "reply_failed"]
    expected = {
        **{"delivery_id": failed["id"], "task_id": first["session_id"], "error": failed["last_error"]},
        **{"name": service.name, "channel_id": "room", "user_id": "ann"},
    }
    assert notice["conversation_id"] == first["conversation_id"]
    assert expected.items() <= notice.items()
    [request] = await service.receiver.got("/ops")
    assert (request.json["type"], request.json["data"]) == ("reply_failed", expected)
    service.receiver.refuse = lambda _: None
    assert (await stack.http.post(f"/deliveries/{failed['id']}/resend")).status_code == 202

    async def resent() -> bool:
        return texts(service.receiver.at("/in"))[-1] == "one"

    await eventually(resent, what="it is sent again on request")
    await stack.http.delete(f"/subscriptions/{made['id']}")


@pytest.mark.exactly_once
async def test_replies_stay_in_order_though_the_worker_is_killed_while_it_sends(service: Service) -> None:
    stack, service.receiver.held = service.stack, asyncio.Event()
    await said_in_order(service, "one", "two", "three")
    await service.replies(1)
    killed = await stack.kill("worker")
    await stack.back("worker", killed)
    service.receiver.held.set()
    found = texts(await service.replies(4))
    assert found == ["one", "one", "two", "three"]
    assert len({request.headers["webhook-id"] for request in service.receiver.at("/in")}) == 3


@pytest.mark.proves("S2-B23")
async def test_an_agent_that_has_nothing_to_say_sends_nothing(service: Service) -> None:
    part = ("async_task", {"agent": "helper", "prompt": say("part"), "description": "a part"})
    for definition in (agent("helper", mode="subagent"), agent("delegator", "helper")):
        assert (await service.stack.http.put(f"/agents/{definition['name']}", json=definition)).is_success
    await service.put(service.name, agent="delegator", target=f"{service.receiver.url}/in")
    quiet = await service.say(chain([part], last="NO_MESSAGE"))
    await service.ended(quiet["session_id"])
    there: dict[str, Any] = {"conversation_id": quiet["conversation_id"], "silent_reply": "Nothing to do."}
    beats = [await create(service.stack, say(text), **there) for text in ("Nothing to do.", "Alarm")]
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
    assert (await service.reset("eve")).status_code == 404


async def test_connectors_are_checked_listed_changed_and_removed(service: Service) -> None:
    http, name = service.stack.http, f"k-{new_id()}"
    for wrong in ({"kind": "pigeon"}, {"agent": "nobody"}, {"target": "http://example.org/x"}):
        refused = await http.put(f"/connectors/{name}", json={"kind": "webhook", "agent": "tester", **wrong})
        assert refused.status_code in (404, 422), (wrong, refused.text)
    made = await service.put(name)
    changed = await service.put(name, debounce_ms=100)
    assert changed["id"] == made["id"] and changed["secret"] is None and changed["debounce_ms"] == 100
    listed = (await http.get("/connectors")).json()["items"]
    assert made["secret"] not in str(listed) and name in [one["name"] for one in listed]
    assert (await http.put(f"/connectors/{name}", json={"kind": "email", "agent": "tester"})).status_code == 409
    assert (await http.delete(f"/connectors/{name}")).status_code == 204
    assert (await http.delete(f"/connectors/{name}")).status_code == 404


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
