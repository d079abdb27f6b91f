"""Activities alone: built without a worker and run in the SDK's ActivityEnvironment, on the real database."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest_asyncio
from temporalio.activity import _Definition
from temporalio.testing import ActivityEnvironment

import activities
import worker
from activities.runtime.event_writer import EventWriter
from activities.sandbox import Refusing
from domain.conversations.requests import Nothing
from domain.ids import new_id
from domain.notification import DeliveryAttempt, DeliveryStatus
from domain.sessions.input_request import RemindRequest
from domain.sessions.step import Effect, ToolRequest
from store import sessions
from tests.support.stack import Stack, calls, of_type

Activities = dict[str, Callable[..., Any]]


@pytest_asyncio.fixture
async def alone(stack: Stack, tmp_path: Path) -> AsyncIterator[Activities]:
    async with EventWriter(stack.pool) as events:
        sandbox = Refusing("none", "")
        services = worker.build_services(stack.settings, stack.pool, stack.client, events, sandbox)
        functions = activities.build(services)
        yield {str(_Definition.must_from_callable(function).name): function for function in functions}


async def test_recorded_tool_call_is_not_run_again(stack: Stack, alone: Activities) -> None:
    record = await stack.run(calls(("report_progress", {"message": "half"})))
    session = await sessions.get(stack.pool, "default", record["task_id"])
    assert session is not None
    node = await stack.pool.fetchval("SELECT node FROM tool_calls WHERE session_id = $1", record["task_id"])
    request = ToolRequest(
        ref=session.ref,
        agent=session.agent_ref,
        step=1,
        node=node,
        index=0,
        name="report_progress",
        effect=Effect.IDEMPOTENT,
        workspace_id=session.workspace_id,
    )
    outcome = await ActivityEnvironment().run(alone["tool.report_progress"], request)
    assert (outcome.state, outcome.preview) == ("ok", "Reported.")
    assert len(of_type(await stack.events(record["task_id"]), "progress")) == 1


async def test_delivery_whose_record_was_removed_fails_for_good(alone: Activities) -> None:
    attempt = DeliveryAttempt(tenant="default", id=new_id(), pause_s=1)
    outcome = await ActivityEnvironment().run(alone["deliver"], attempt)
    assert (outcome.status, outcome.note) == (DeliveryStatus.FAILED, "Its record was removed.")


async def test_reminder_of_a_request_is_emitted_once(stack: Stack, alone: Activities) -> None:
    gated = [{"permission": "report_progress", "action": "ask"}]
    task_id = await stack.submit(calls(("report_progress", {"message": "x"})), permissions=gated)
    await stack.seen(task_id, "input_required")
    [request] = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
    session = await sessions.get(stack.pool, "default", task_id)
    assert session is not None
    for _ in range(2):  # a retry after a lost response
        remind = RemindRequest(ref=session.ref, id=request["id"])
        assert await ActivityEnvironment().run(alone["remind_request"], remind) == Nothing()
    assert len(of_type(await stack.events(task_id), "input_reminder")) == 1
    await stack.cancel(task_id)
