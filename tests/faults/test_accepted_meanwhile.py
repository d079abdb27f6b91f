"""Tasks accepted while Temporal or the worker was down start as soon as it is up again, not half a minute later by a
sweep."""

import asyncio
import contextlib
import signal
from itertools import pairwise

import httpx2
import pytest
from temporalio.service import RPCError

from tests.behaviour.conversations.talk import Gate, Talk, agent, say
from tests.support.stack import Stack, calls, eventually


async def test_requests_are_passed_on_when_temporal_is_back(stack: Stack) -> None:
    """A worker passes on a new task, a cancel, an answer, a message and a schedule of the time of an outage."""
    tool = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
    external = {"external_tools": [tool]}
    stopped, answered, steered = [await stack.submit(calls(("look_up", {})), config=external) for _ in range(3)]
    for task_id in (stopped, answered, steered):
        await stack.seen(task_id, "input_required")
    rules = {"name": "rare", "cron": "0 0 1 1 *", "task": {"agent": "tester", "input": say("x")}}
    async with stack.without_sweeps():
        before = stack.pid("temporal")
        with stack.frozen_supervisor():
            stack.signal("temporal", signal.SIGKILL)
            # all at the same time, because each waits for Temporal for some seconds
            waiting, cancelled, _, sent, made = await asyncio.gather(
                stack.submit("[[script:say text=patient]]"),
                stack.cancel(stopped),
                answer(stack, answered),
                stack.http.post(f"/tasks/{steered}/steer", json={"message": "Remember the milk."}, timeout=20),
                stack.http.post("/schedules", json=rules, timeout=20),
            )
            assert (cancelled.status_code, sent.status_code) == (202, 202)
            schedule = made.raise_for_status().json()
            assert (await stack.record(waiting))["status"] == "submitted"
        await stack.back("temporal", before)
        assert (await stack.wait(waiting))["status"] == "completed"
        assert (await stack.wait(stopped))["reason"] == "caller_cancel"
        assert (await stack.wait(answered))["status"] == "completed"
        unsignalled = "SELECT count(*) FROM inbox WHERE conversation_id = $1 AND unsignalled"

        async def delivered() -> bool:
            return not await stack.pool.fetchval(unsignalled, steered)

        async def scheduled() -> bool:
            return bool((await stack.http.get(f"/schedules/{schedule['id']}")).json()["next_times"])

        await eventually(delivered, what="the message is passed on")
        await eventually(scheduled, what="the schedule is passed on")
        await answer(stack, steered)
        assert (await stack.wait(steered))["status"] == "completed"
        assert any("Remember the milk." in str(node["body"]) for node in await stack.nodes(steered))


async def answer(stack: Stack, task_id: str) -> None:
    [request] = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
    body = {"response_to": request["id"], "input": {"result": "found"}}
    assert (await stack.http.post(f"/tasks/{task_id}/input", json=body, timeout=20)).status_code == 202


@pytest.mark.proves("S0-10")
async def test_worker_starts_waiting_sessions_when_it_starts(stack: Stack) -> None:
    """A further turn, which only a worker can start: the API that accepted it was killed as well."""
    talk = await Talk.done(stack, say("Hello."), "tester")
    async with stack.without_sweeps():
        worker, api = stack.pid("worker"), stack.pid("api")
        with stack.frozen_supervisor():
            stack.signal("worker", signal.SIGKILL)
            turn = await talk.say(say("Going on."))
            assert (await talk.session(turn)).live
            stack.signal("api", signal.SIGKILL)
            with contextlib.suppress(RPCError):  # the turn is sent after the response, so it may not have arrived
                await stack.client.get_workflow_handle(f"conversation/{talk.id}").terminate("with what it was sent")
            await stack.age(turn)  # as if accepted long ago, so that no process is about to start it
        await asyncio.gather(stack.back("worker", worker), stack.back("api", api))
        await eventually(stack.reads, what="the API is back")
        assert (await stack.wait(turn))["status"] == "completed"


async def test_tasks_survive_a_kill_of_the_api_right_after_its_responses(stack: Stack) -> None:
    """Many tasks are submitted at once; the first response ends the API."""
    api, found = stack.pid("api"), list[str]()

    async def one() -> None:
        with contextlib.suppress(httpx2.TransportError):
            found.append(await stack.submit("[[script:say text=patient]]"))
            if len(found) == 1:
                stack.signal("api", signal.SIGKILL)

    async with stack.without_sweeps():
        await asyncio.gather(*(one() for _ in range(40)))
        await stack.back("api", api)
        for task_id in found:
            assert (await stack.wait(task_id))["status"] == "completed"


@pytest.mark.proves("S1-21")
async def test_queue_keeps_its_order_though_everything_is_killed(stack: Stack) -> None:
    """Five turns wait behind a running one when Temporal, the worker, the API and PostgreSQL are killed."""
    gate = Gate()
    assert (await stack.http.put("/agents/queued", json=agent("queued"))).is_success
    talk = await Talk.begin(stack, gate.then("first"), "queued")
    await stack.seen(talk.id, "tool_called", tool="wait_for")
    waiting = [await talk.say(say(f"n{number}"), if_busy="queue") for number in range(5)]
    parts = ("temporal", "worker", "api", "postgres")
    pids = {part: stack.pid(part) for part in parts}
    with stack.frozen_supervisor():
        for part in parts:
            stack.signal(part, signal.SIGKILL)
    for part in parts:
        await stack.back(part, pids[part])
    await stack.pool.expire_connections()
    gate.open()
    records = [await stack.wait(one) for one in (talk.id, *waiting)]
    assert [record["status"] for record in records] == ["completed"] * 6
    for before, after in pairwise(records):
        assert before["ended_at"] <= after["started_at"]
    turns = (await stack.http.get(f"/conversations/{talk.id}/turns")).json()["items"]
    assert [turn["session_id"] for turn in turns] == [talk.id, *waiting]  # each once, in the order of acceptance
    assert [(await stack.result(one))["output"] for one in waiting] == [f"n{number}" for number in range(5)]
