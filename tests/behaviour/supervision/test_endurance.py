"""Waiting uses no resources and survives kills of the worker and of Temporal, and days that pass."""

import asyncio
import signal
from datetime import timedelta

import pytest
from temporalio.testing import TimeSkipper

from tests.behaviour.supervision.people import answer, ask, bash, output, plan, waiting
from tests.support.stack import Stack, calls, eventually, steps
from workflows.client import WorkflowClient

DAY = 86_400_000


async def test_a_plan_is_approved_after_three_days(people: Stack) -> None:
    config = {"approval_required": True, "ttl": 8 * DAY}
    task_id = await people.submit(steps([plan("touch")], [bash("touch late")]), config=config)
    [request] = await waiting(people, task_id)
    assert await TimeSkipper(people.client).fast_forward(people.session(task_id), timedelta(days=3))
    assert (await people.record(task_id))["status"] == "input_required"
    assert (await answer(people, task_id, request["id"], {"approved": True})).status_code == 202
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    assert await asyncio.to_thread((people.workspace(task_id) / "late").exists)
    history = await people.session(task_id).fetch_history()
    times = [event.event_time.ToDatetime() for event in history.events]
    assert times[-1] - times[0] > timedelta(days=3)
    assert len(history.events) < 80  # days of waiting are a single timer


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


async def test_an_answer_while_temporal_is_away_arrives_later(people: Stack) -> None:
    task_id = await people.submit(calls(ask("Which?")), "asker")
    [request] = await waiting(people, task_id)
    before = people.pid("temporal")
    with people.frozen_supervisor():
        people.signal("temporal", signal.SIGKILL)
        assert (await answer(people, task_id, request["id"], "this one")).status_code == 202
    await people.back("temporal", before)
    await people.age(task_id)

    async def swept() -> bool:
        await WorkflowClient(people.client, "errand").sweep()
        return bool((await people.record(task_id))["status"] == "completed")

    await eventually(swept, what="the sweeper passed the answer on to the session")
    assert await output(people, task_id) == "ask_user returned: this one"
