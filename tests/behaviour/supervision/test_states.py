"""The six states of a task, the caller's actions in each, how long each may last, and what continues it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import TimeSkipper

from domain.ids import new_id
from tests.behaviour.supervision.people import agent, answer, answered, ask, bash, output, plan, waiting
from tests.behaviour.triggers.sender import Sender
from tests.support.stack import Stack, calls, of_type, steps


@pytest.mark.proves("S1-10", "S1-11", "S1-16")
async def test_each_state_has_its_actions(people: Stack) -> None:
    http = people.http

    async def holds(task_id: str, status: str) -> None:
        assert (await people.record(task_id))["status"] == status
        early = await http.get(f"/tasks/{task_id}/result")
        assert (early.status_code, early.json()["task_status"]) == (409, status)

    with people.frozen("worker"):
        submitted = await people.submit(calls(ask("Go on?")), "asker")
        await holds(submitted, "submitted")  # polling and subscribing work before a worker has started it
        assert (await people.events(submitted))[0]["type"] == "task_submitted"
    [request] = await waiting(people, submitted)
    await holds(submitted, "input_required")
    assert (await answer(people, submitted, request["id"], "yes")).status_code == 202  # the caller answers …
    assert (await people.wait(submitted))["status"] == "completed"
    assert "yes" in (await people.result(submitted))["output"]  # … and gets the result

    working = await people.submit("[[script:say words=30]] [[fault:hang after=6]]")
    await people.seen(working, "message_delta")  # the caller follows the stream
    await holds(working, "working")

    unanswered = await people.submit(calls(ask("Go on?")), "asker")
    await waiting(people, unanswered)
    for task_id in (working, unanswered):  # the caller cancels instead of answering
        assert (await people.cancel(task_id)).status_code == 202
        assert (await people.wait(task_id))["status"] == "cancelled"
        assert (await people.result(task_id))["reason"] == "caller_cancel"  # the cancel is confirmed

    failed = await people.run(calls(ask("Go on?")))  # this agent may not ask
    assert (failed["status"], failed["reason"]) == ("failed", "needs_input")
    assert (await people.result(failed["task_id"]))["error"]  # the caller inspects the error; a retry is a new task


DAY = 86_400_000


@pytest.mark.proves("S1-15")
async def test_input_expires_after_seven_days(people: Stack) -> None:
    task_id = await people.submit(calls(ask("Which?")), "asker", config={"ttl": 9 * DAY, "input_timeout": 7 * DAY})
    await waiting(people, task_id)
    skipper, session = TimeSkipper(people.client), people.session(task_id)
    assert await skipper.fast_forward(session, timedelta(days=6))
    assert (await people.record(task_id))["status"] == "input_required"
    await skipper.fast_forward(session, timedelta(days=1, minutes=1))
    record = await people.wait(task_id)
    assert (record["status"], record["reason"]) == ("cancelled", "input_timeout")
    assert len((await session.fetch_history()).events) < 80  # days of waiting are a single timer


@pytest.mark.proves("F-11", "S1-14")
async def test_the_worker_is_killed_while_people_think(people: Stack) -> None:
    task_id = await people.submit(calls(ask("Which?"), bash("touch a")), "careful")
    question, approval = sorted(await waiting(people, task_id, 2), key=lambda one: str(one["kind"]))
    before = await people.kill("worker")
    assert (await answer(people, task_id, question["id"], "this one")).status_code == 202
    await people.back("worker", before)
    assert (await people.record(task_id))["status"] == "input_required"
    assert (await answer(people, task_id, approval["id"], {"approved": True})).status_code == 202
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    assert await asyncio.to_thread((people.workspace(task_id) / "a").exists)
    assert "this one" in await output(people, task_id)


LATE = {"input_timeout": 1_000}
LOOK_UP = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object", "properties": {}}}
SCRIPTED = [
    agent("informed", may_ask=True, variables={"city": "where to look"}),
    agent("listener", tools=["wait_for_event"]),
]


async def defined(stack: Stack, name: str) -> str:
    for one in SCRIPTED:
        if one["name"] == name:
            assert (await stack.http.put(f"/agents/{name}", json=one)).is_success
    return name


def continued(events: list[dict[str, Any]], *expected: str) -> None:
    """Assert one wait and one event that ended it, followed by steps until the end."""
    waits = of_type(events, "input_required", "input_received", "input_expired")
    assert [event["type"] for event in waits] == list(expected)
    assert len({event["request_id"] for event in waits}) == 1
    following = [event["type"] for event in events[events.index(waits[-1]) + 1 :]]
    assert "step_started" in following and following[-1] == "task_completed"


@pytest.mark.proves("D15")
@pytest.mark.parametrize(
    ("agent", "text", "config", "kind", "answer"),
    [
        ("asker", calls(ask("Which port?")), {}, "clarification", "80"),
        ("careful", calls(bash("touch yes")), {}, "tool_approval", {"approved": True}),
        ("careful", calls(bash("touch no")), {}, "tool_approval", {"approved": False}),
        ("tester", steps([plan("x")]), {"approval_required": True}, "plan_approval", {"approved": True}),
        ("tester", calls(("look_up", {})), {"external_tools": [LOOK_UP]}, "external_result", {"result": 1}),
        ("informed", "[[script:say]]", {}, "missing_variables", {"city": "Oslo"}),
        ("asker", calls(ask("Hue?", default="red")), LATE | {"on_input_timeout": "default"}, "clarification", None),
        ("asker", calls(ask("Hue?")), LATE | {"on_input_timeout": "deny"}, "clarification", None),
    ],
)
async def test_continuing_after_a_wait_is_an_event(
    people: Stack, agent: str, text: str, config: dict[str, Any], kind: str, answer: Any
) -> None:
    task_id = await people.submit(text, await defined(people, agent), config=config)
    assert (await people.seen(task_id, "input_required"))["kind"] == kind
    record = await (people.wait(task_id) if answer is None else answered(people, task_id, answer))
    assert record["reason"] == "goal_reached"
    continued(await people.events(task_id), "input_required", "input_expired" if answer is None else "input_received")


@pytest.mark.proves("D15")
async def test_continuing_after_an_event_from_outside_is_an_event(people: Stack) -> None:
    order = new_id()
    keyed: dict[str, Any] = {"task": None, "correlation": "order:{{payload.order}}", "template": "paid"}
    sender = await Sender.new(people, **keyed)
    text = calls(("wait_for_event", {"key": f"order:{order}", "trigger": sender.name}))
    task_id = await people.submit(text, await defined(people, "listener"))
    await waiting(people, task_id)
    assert (await sender.accepted({"order": order}))["session_id"] == task_id
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    continued(await people.events(task_id), "input_received")  # nobody was asked for anything
