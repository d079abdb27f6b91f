"""Limits of what runs already: raised budgets, two ways to cancel, whose task it is, and the share of
each tenant."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from store.keys import Right
from tests.behaviour.api.conftest import key_for
from tests.behaviour.supervision.people import answer, ask, bearer, waiting
from tests.support.launch import TESTER
from tests.support.own_worker import platform
from tests.support.stack import Stack, calls, eventually, of_type, steps

LOOK = ("list_files", {"path": "."})


def errors(body: dict[str, object]) -> list[tuple[str, str]]:
    found = body["errors"]
    assert isinstance(found, list)
    return [(one["pointer"], one["code"]) for one in found]


async def test_waiting_task_uses_its_raised_budget_and_ends_when_it_is_spent(bounded: Stack) -> None:
    """Each of these limits would have ended the task: steps, tool calls, time, and the steps of the tree."""
    config = {"max_steps": 1, "max_tool_calls": 1, "ttl": 5_000, "tree": {"max_steps": 1}}
    task_id = await bounded.submit(steps([ask("Which?")], [LOOK]), "curious", config=config)
    [request] = await waiting(bounded, task_id)
    more = {"max_steps": 5, "max_tool_calls": 3, "ttl": 90_000, "tree": {"max_steps": 5}}
    raised = await bounded.http.post(f"/tasks/{task_id}/budget", json=more)
    assert raised.status_code == 200, raised.text
    limits = {one["budget"]: one["limit"] for one in raised.json()["budgets"]}
    assert (limits["steps"], limits["tool_calls"], limits["ttl"]) == (5, 3, 90_000)
    assert raised.json()["tree"]["budgets"][0]["limit"] == 5
    again = await bounded.http.post(f"/tasks/{task_id}/budget", json=more)
    assert again.status_code == 200

    async def past_the_old_deadline() -> bool:
        return datetime.now(UTC) > datetime.fromisoformat(request["deadline"])

    await eventually(past_the_old_deadline)
    [still] = await waiting(bounded, task_id)
    assert still["deadline"] > request["deadline"]
    assert (await answer(bounded, task_id, request["id"], "this one")).status_code == 202
    record = await bounded.wait(task_id)
    assert (record["reason"], record["limits"]["raised"]) == ("goal_reached", True)

    events = of_type(await bounded.events(task_id), "budget_raised")  # the repeated request changed nothing
    assert [(one["scope"], one["budget"], one["before"], one["limit"]) for one in events] == [
        ("session", "ttl", 5_000, 90_000),
        ("session", "steps", 1, 5),
        ("session", "tool_calls", 1, 3),
        ("tree", "steps", 1, 5),
    ]
    audit = (await bounded.http.get(f"/tasks/{task_id}/audit")).json()["items"]
    assert [one["action"] for one in audit].count("raise_budget") == 1
    late = await bounded.http.post(f"/tasks/{task_id}/budget", json=more)
    assert (late.status_code, late.json()["type"]) == (409, "urn:errand:problem:already-terminal")


async def test_raises_are_bounded_and_never_lower_anything(bounded: Stack) -> None:
    config = {"max_steps": 9, "tree": {"max_steps": 20}}
    task_id = await bounded.submit(steps([ask("Which?")]), "curious", config=config)
    await waiting(bounded, task_id)
    cases: list[tuple[dict[str, object], list[tuple[str, str]]]] = [
        ({}, [("", "empty")]),
        ({"max_steps": 8}, [("/max_steps", "lower")]),
        ({"max_steps": 21}, [("/max_steps", "out_of_range")]),  # more than its conversation has
        ({"ttl": 10**15}, [("/ttl", "out_of_range")]),
        ({"max_tool_calls": 5}, [("/max_tool_calls", "no_limit")]),
        ({"tree": {"max_steps": 19}}, [("/tree/max_steps", "lower")]),
    ]
    for body, expected in cases:
        refused = await bounded.http.post(f"/tasks/{task_id}/budget", json=body)
        assert refused.status_code == 422, body
        assert errors(refused.json()) == expected
    assert of_type(await bounded.events(task_id), "budget_raised") == []
    assert (await bounded.record(task_id))["limits"]["steps"] == 9
    await bounded.cancel(task_id)


async def test_running_task_takes_more_steps_than_it_began_with(bounded: Stack) -> None:
    """The signal arrives between two steps."""
    task_id = await bounded.submit("[[script:count n=12 tool=bash]]", config={"max_steps": 6})
    await bounded.seen(task_id, "step_started", step=2)
    assert (await bounded.http.post(f"/tasks/{task_id}/budget", json={"max_steps": 20})).status_code == 200
    assert (await bounded.wait(task_id))["reason"] == "goal_reached"


SLOW = "echo begun > begun; sleep 3; echo done > done"


async def working(stack: Stack, command: str = SLOW) -> str:
    task_id = await stack.submit(calls(("bash", {"command": command})))
    begun = stack.workspace(task_id) / "begun"
    while not await asyncio.to_thread(begun.exists):  # noqa: ASYNC110 - the sandbox makes the file
        await asyncio.sleep(0.05)
    return task_id


@pytest.mark.proves("S1-B05")
async def test_a_graceful_cancel_lets_the_tool_finish(stack: Stack) -> None:
    task_id = await working(stack)
    answer = await stack.cancel(task_id, mode="graceful", reason="enough")
    assert answer.status_code == 202 and answer.json()["cancel_requested"]["grace_ms"] == 60_000
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("cancelled", "caller_cancel")
    events = await stack.events(task_id)
    assert [event["state"] for event in of_type(events, "tool_returned")] == ["ok"]
    assert of_type(events, "cancel_requested")[0]["mode"] == "graceful"
    assert await asyncio.to_thread((stack.workspace(task_id) / "done").exists)
    assert len(await stack.asked(task_id)) == 1  # nothing ran after the tool


@pytest.mark.proves("S1-B05")
async def test_grace_period_ends_in_time_or_by_a_hard_cancel(stack: Stack) -> None:
    long = SLOW.replace("sleep 3", "sleep 50")
    runs_out, hardened = await asyncio.gather(working(stack, long), working(stack, long))
    began = time.monotonic()
    await stack.cancel(runs_out, mode="graceful", grace=1_000)
    await stack.cancel(hardened, mode="graceful")
    assert (await stack.cancel(hardened, mode="hard")).status_code == 202
    for task_id in (runs_out, hardened):
        assert (await stack.wait(task_id))["reason"] == "caller_cancel"
        assert [one["state"] for one in of_type(await stack.events(task_id), "tool_returned")] == ["cancelled"]
    assert time.monotonic() - began < 20


async def asking(stack: Stack, headers: dict[str, str]) -> str:
    body = {"agent": "curious", "input": calls(ask("Which?"))}
    said = await stack.http.post("/tasks", json=body, headers=headers)
    assert said.status_code == 202, said.text
    task_id: str = said.json()["task_id"]
    await waiting(stack, task_id)
    return task_id


@pytest.mark.proves("S1-18")
async def test_canceller_is_recorded(bounded: Stack) -> None:
    owner = await bearer(bounded, Right.SUBMIT)
    task_id = await asking(bounded, owner)
    supervisor = await bearer(bounded, Right.SUPERVISE)
    stopped = await bounded.http.post(f"/tasks/{task_id}/cancel", json={"reason": "wrong"}, headers=supervisor)
    assert stopped.status_code == 202
    record = await bounded.wait(task_id)
    assert (record["status"], record["cancel_requested"]["by"]) == ("cancelled", "supervise")
    own = await asking(bounded, owner)
    assert (await bounded.http.post(f"/tasks/{own}/cancel", headers=owner)).status_code == 202


SLEEPERS, SLOTS = 20, {"max_model_calls": 6, "max_tool_calls": 6}


async def submit_command(stack: Stack, headers: dict[str, str], command: str) -> str:
    spec = {"agent": "tester", "input": calls(("bash", {"command": command, "timeout_s": 600}))}
    answer = await stack.http.post("/tasks", json=spec, headers=headers)
    assert answer.status_code == 202, answer.text
    task_id: str = answer.json()["task_id"]
    return task_id


async def test_sleeping_commands_of_one_tenant_leave_room_for_another(stack: Stack, tmp_path: Path) -> None:
    """More commands than the worker has slots, of one key, sleep for much longer than anybody waits."""
    async with platform(stack, tmp_path, {}, **SLOTS) as own:
        flood, other = await key_for(own.pool, "flood"), await key_for(own.pool, "other")
        for headers in (flood, other):
            assert (await own.http.put("/agents/tester", json=TESTER, headers=headers)).is_success
        for _ in range(SLEEPERS // 10):  # not all at once: a busy machine would refuse some
            await asyncio.gather(*(submit_command(own, flood, "sleep 500") for _ in range(10)))

        async def settled() -> bool:  # each of them waits for its command, or all slots are taken
            row = await own.pool.fetchrow(
                "SELECT (SELECT count(*) FROM messages WHERE tenant = 'flood' AND kind = 'assistant'),"
                " (SELECT count(*) FROM tool_calls WHERE tenant = 'flood')"
            )
            assert row is not None
            return bool(row[0] == SLEEPERS or row[1] == sum(SLOTS.values()))

        await eventually(settled, seconds=180, what="the flood sleeps")
        task_id = await submit_command(own, other, "echo hello")

        async def ended() -> dict[str, Any] | None:
            record: dict[str, Any] = (await own.http.get(f"/tasks/{task_id}", headers=other)).json()
            return record if record["status"] == "completed" else None

        await eventually(ended, what="the command of the other tenant")
        running = await own.pool.fetchval("SELECT count(*) FROM tool_calls WHERE tenant = 'flood'")
        assert running == SLOTS["max_tool_calls"] // 2  # and none that was put back was claimed
