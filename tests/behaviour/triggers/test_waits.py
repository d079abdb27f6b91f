"""Sessions that wait for an event by its key, and events between agents."""

import json
from typing import Any

import pytest
import pytest_asyncio

from domain.ids import new_id
from tests.behaviour.conversations.talk import chain
from tests.behaviour.supervision.people import waiting
from tests.behaviour.triggers.sender import Sender
from tests.support.stack import Stack, eventually, of_type

TOOLS = ["wait_for_event", "emit_event", "subscribe_events", "list_files"]
KEYED: dict[str, Any] = {"task": None, "correlation": "order:{{payload.order}}", "template": "paid: {{payload.paid}}"}


@pytest_asyncio.fixture
async def waiters(stack: Stack) -> Stack:
    for name in ("waiter", "emitter"):
        body = {"name": name, "description": "Of the tests.", "prompt": "You are tested.", "tools": TOOLS}
        assert (await stack.http.put(f"/agents/{name}", json=body)).is_success
    return stack


def wait(key: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "wait_for_event", {"key": key, **more}


def emit(name: str, **data: Any) -> tuple[str, dict[str, Any]]:
    return "emit_event", {"name": name, "data": data}


async def _results(stack: Stack, task_id: str) -> list[str]:
    nodes = await stack.nodes(task_id)
    return [one["text"] for node in nodes if node["kind"] == "tool_results" for one in node["body"]["results"]]


async def _waits(stack: Stack, task_id: str) -> dict[str, Any]:
    [request] = await waiting(stack, task_id)
    return request


@pytest.mark.proves("S1-B11")
async def test_an_event_reaches_the_session_that_waits_for_its_key(waiters: Stack) -> None:
    order = new_id()
    sender = await Sender.new(waiters, **KEYED)
    text = chain([wait(f"order:{order}", trigger=sender.name)], last="thanks")
    expiring = chain([wait(f"order:{order}", trigger=sender.name, timeout_s=4)], last="too late")
    first = await waiters.submit(expiring, agent="waiter")
    await _waits(waiters, first)
    held = await waiters.run(text, agent="waiter")
    [refusal] = await _results(waiters, held["task_id"])
    assert first in refusal and "waits for" in refusal  # the key is taken
    assert (await waiters.wait(first))["status"] == "completed"
    task_id = await waiters.submit(text, agent="waiter")  # the first wait has expired
    request = await _waits(waiters, task_id)
    assert request["kind"] == "external_event"
    assert (await waiters.record(task_id))["status"] == "working"  # no person has to do anything
    listed = (await waiters.http.get("/input-requests")).json()["items"]
    assert request["id"] not in [one["id"] for one in listed]
    forged = {"response_to": request["id"], "input": {"text": "paid: 42"}}
    refused = await waiters.http.post(f"/tasks/{task_id}/input", json=forged)
    assert refused.json()["type"].endswith("unknown-request"), refused.text
    refused = await waiters.http.post(f"/conversations/{task_id}/messages", json={"answers": {request["id"]: True}})
    assert refused.json()["type"].endswith("unknown-request"), refused.text
    other = await sender.accepted({"order": "another", "paid": 1})
    assert other["outcome"] == "kept"
    accepted = await sender.accepted({"order": order, "paid": 42}, event_id=f"evt-{order}")
    assert (accepted["outcome"], accepted["session_id"]) == ("delivered", task_id)
    # the event is sent again
    assert await sender.accepted({"order": order, "paid": 42}, event_id=f"evt-{order}") == accepted
    assert (await waiters.wait(task_id))["status"] == "completed"
    [text] = await _results(waiters, task_id)
    assert "<untrusted_event" in text and "\npaid: 42\n" in text
    events = await waiters.events(task_id)
    assert not of_type(events, "input_required") and of_type(events, "input_received")
    again = await sender.accepted({"order": order, "paid": 43})  # the key is free again
    assert again["outcome"] == "kept"


async def test_an_event_that_came_before_the_wait_counts_once(waiters: Stack) -> None:
    order = new_id()
    sender = await Sender.new(waiters, **KEYED)
    key = f"order:{order}"
    await sender.accepted({"order": order, "paid": "too early"})  # before the task began
    gate = f"gate:{order}"
    text = chain([wait(gate)], [wait(key)], [wait(key, timeout_s=1)], last="ok")
    task_id = await waiters.submit(text, agent="waiter")
    await _waits(waiters, task_id)
    assert (await sender.accepted({"order": order, "paid": "in time"}))["outcome"] == "kept"
    opener = await waiters.run(chain([emit(gate)], last="emitted"), agent="emitter")
    assert opener["status"] == "completed"
    assert (await waiters.wait(task_id))["status"] == "completed"
    _, second, third = await _results(waiters, task_id)
    assert "paid: in time" in second
    assert third == f"No event with the key {key} arrived in time."
    assert [one["outcome"] for one in await sender.events()] == ["delivered", "kept"]


async def test_an_answer_that_was_not_signalled_is_found_by_the_sweeper(waiters: Stack) -> None:
    key = f"k:{new_id()}"
    task_id = await waiters.submit(chain([wait(key)], last="ok"), agent="waiter")
    request = await _waits(waiters, task_id)
    answer = json.dumps({"text": "late news"})
    await waiters.pool.execute(  # as if the API had been killed between the commit and the signal
        "UPDATE input_requests SET status = 'answered', answer = $2, answered_at = now() WHERE id = $1",
        request["id"],
        answer,
    )
    await waiters.age(task_id)
    assert (await waiters.wait(task_id, 120))["status"] == "completed"
    assert await _results(waiters, task_id) == ["late news"]


async def test_emitted_events_wake_the_subscribers_and_never_their_sender(waiters: Stack) -> None:
    mark = new_id()
    pattern = ("subscribe_events", {"pattern": f"build:*:{mark}"})
    listener = await waiters.run(chain([pattern], last="subscribed"), agent="waiter")
    # subscribe in an earlier step: the calls of one step may run at the same time
    script = chain([pattern], [emit(f"build:42:{mark}", ok=True), emit(f"build:{mark}")], last="emitted")
    sender = await waiters.run(script, agent="emitter")
    results = await _results(waiters, sender["task_id"])
    assert results[1:] == [
        f"Emitted build:42:{mark}. It reached 1 agent.",
        f"Emitted build:{mark}. It reached 0 agents.",
    ]

    async def woken() -> list[dict[str, Any]] | None:
        path = f"/tasks?conversation_id={listener['conversation_id']}"
        found: list[dict[str, Any]] = (await waiters.http.get(path)).json()["items"]
        return found if len(found) == 2 and all(one["status"] == "completed" for one in found) else None

    second = max(await eventually(woken), key=lambda one: str(one["task_id"]))
    seen = json.dumps(await waiters.nodes(second["task_id"]))
    assert f"build:42:{mark}" in seen and "untrusted_event" in seen
    own = (await waiters.http.get(f"/tasks?conversation_id={sender['conversation_id']}")).json()["items"]
    assert len(own) == 1
    left = ("subscribe_events", {"pattern": f"build:*:{mark}", "subscribe": False})
    script = chain([pattern], [left], [emit(f"build:43:{mark}")], last="left")
    gone = await waiters.run(script, agent="waiter")
    after = await waiters.run(chain([emit(f"build:44:{mark}")], last="emitted"), agent="waiter")
    # both subscribers of before, and not the one that left
    assert await _results(waiters, after["task_id"]) == [f"Emitted build:44:{mark}. It reached 2 agents."]
    assert len(await _results(waiters, gone["task_id"])) == 3
