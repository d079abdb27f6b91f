"""Calls of a worker that was killed: the next worker ends them, and never those of a worker that only pauses."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest_asyncio
from temporalio.api.enums.v1 import EventType, PendingActivityState

from activities.dead_workers import end_calls
from domain.ids import new_id
from store import workers
from store.database import Pool, connect
from tests.support.stack import Stack, calls, eventually, of_type


@pytest_asyncio.fixture
async def named(stack: Stack) -> AsyncIterator[tuple[str, Pool]]:
    """The name and the pool of a worker that starts."""
    name = f"elsewhere/{new_id()}"
    async with await connect(stack.database_url, name=name) as pool:
        old = f"SELECT pg_postmaster_start_time() < now() - interval '{workers.RECONNECTED_SECONDS} s'"
        await eventually(lambda: pool.fetchval(old), what="the database did not just start")
        yield name, pool


async def running(stack: Stack, task_id: str) -> tuple[str, int]:
    """The worker and the attempt of the one call that runs."""

    async def look() -> tuple[str, int] | None:
        described = await stack.session(task_id).describe()
        for call in described.raw_description.pending_activities:
            if call.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED:
                return call.last_worker_identity, call.attempt
        return None

    return await eventually(look, what="a call runs")


async def ended_by(stack: Stack, task_id: str) -> list[str]:
    """Why attempts ended."""
    events = (await stack.session(task_id).fetch_history()).events
    started = [event.activity_task_started_event_attributes for event in events]
    return [one.last_failure.application_failure_info.type for one in started if one.attempt > 1]


async def test_next_worker_ends_the_calls_of_a_killed_one(
    stack: Stack, named: tuple[str, Pool], tmp_path: Path
) -> None:
    """The timeouts would end the model call only five seconds later, and the `once` call ten."""
    name, pool = named
    once = await stack.submit(calls(("ledger_once", {"path": str(tmp_path / "ledger"), "seconds": 50})))
    model = await stack.submit("[[script:say words=30]] [[fault:hang after=6]]")
    await stack.seen(model, "message_delta")
    await eventually(lambda: asyncio.to_thread((tmp_path / "ledger").exists))
    holder, _ = await running(stack, once)
    with stack.frozen_supervisor():
        killed = await stack.kill("worker")
        await eventually(lambda: _is_dead(pool, name, holder), what="its connections are closed")
        await end_calls(pool, stack.client, name)
    await stack.back("worker", killed)
    for task_id in (once, model):
        assert (await stack.wait(task_id))["status"] == "completed"
        assert await ended_by(stack, task_id) == ["WorkerDied"]
    [returned] = of_type(await stack.events(once), "tool_returned")
    assert returned["state"] == "unknown"
    assert "calls of workers that died" in (stack.root / "logs" / "worker.log").read_text()  # each worker looks


async def test_workflow_task_of_a_killed_worker_goes_to_another_within_seconds(stack: Stack) -> None:
    """Temporal keeps it for the worker that has the session in memory: two seconds, not the ten that are usual."""
    asks = [{"permission": "list_files", "action": "ask"}]
    task_id = await stack.submit(calls(("list_files", {})), permissions=asks)
    await stack.seen(task_id, "input_required")
    killed = await stack.kill("worker")
    await stack.back("worker", killed)
    await stack.cancel(task_id)
    assert (await stack.wait(task_id))["status"] == "cancelled"
    events = (await stack.session(task_id).fetch_history()).events
    [timed_out] = [event for event in events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT]
    scheduled = events[timed_out.workflow_task_timed_out_event_attributes.scheduled_event_id - 1]
    assert timed_out.event_time.ToDatetime() - scheduled.event_time.ToDatetime() < timedelta(seconds=5)


async def test_calls_of_a_worker_that_pauses_are_left_alone(stack: Stack, named: tuple[str, Pool]) -> None:
    name, pool = named
    task_id = await stack.submit("[[script:say words=10 delay=0.3]]")
    holder, _ = await running(stack, task_id)
    gone = f"elsewhere/{new_id()}"
    await workers.beat(stack.pool, gone, "none")
    with stack.frozen("worker"):
        assert holder in await workers.fresh(stack.pool)
        dead = await workers.dead(pool, name)
        assert gone in dead and holder not in dead
        await end_calls(pool, stack.client, name)
        assert await running(stack, task_id) == (holder, 1)
    await workers.leave(stack.pool, gone)
    assert (await stack.wait(task_id))["status"] == "completed"
    assert await ended_by(stack, task_id) == []


async def _is_dead(pool: Pool, name: str, worker: str) -> bool:
    return worker in await workers.dead(pool, name)
