"""Damage to a running workflow: it is deleted, reset, or lost with all of Temporal's data."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest
from temporalio.service import RPCError

from domain.ids import new_id
from tests.support.stack import Stack, eventually


class Damage(Protocol):
    __name__: str

    def __call__(self, stack: Stack, task_id: str, kind: str = "session") -> Awaitable[None]: ...


async def delete(stack: Stack, task_id: str, kind: str = "session") -> None:
    """Terminate the workflow and remove its history, as the command line and the Web UI do. A request that was accepted
    before may start another run at once, so only this one is expected to be gone."""
    handle = stack.client.get_workflow_handle(f"{kind}/{task_id}")
    run_id = (await handle.describe()).run_id
    execution = WorkflowExecution(workflow_id=handle.id, run_id=run_id)
    request = DeleteWorkflowExecutionRequest(namespace=stack.client.namespace, workflow_execution=execution)
    await stack.client.workflow_service.delete_workflow_execution(request)

    async def gone() -> bool:
        try:
            await stack.client.get_workflow_handle(handle.id, run_id=run_id).describe()
        except RPCError:
            return True
        return False

    await eventually(gone, what="the workflow is deleted")


async def reset(stack: Stack, task_id: str, kind: str = "session") -> None:
    """Reset to the first workflow task: the new run knows only its input."""
    handle = stack.client.get_workflow_handle(f"{kind}/{task_id}")
    history = await handle.fetch_history()
    completed = [
        one.event_id for one in history.events if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ]
    described = await handle.describe()
    request = ResetWorkflowExecutionRequest(
        namespace=stack.client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=described.run_id),
        reason="a test",
        workflow_task_finish_event_id=completed[0],
        request_id=new_id(),
    )
    await stack.client.workflow_service.reset_workflow_execution(request)


async def swept(stack: Stack, task_id: str, seconds: float = 60.0) -> dict[str, Any]:
    """The task's record at its end; meanwhile a sweep checks the task repeatedly."""

    async def look() -> dict[str, Any] | None:
        record = await stack.record(task_id)
        if record["ended_at"]:
            return record
        await stack.age(task_id)
        with contextlib.suppress(Exception):
            await stack.sweep()
        return None

    return await eventually(look, seconds=seconds, pause=1.0, what=f"{task_id} ended")


async def lines(path: Path) -> list[str]:
    return await asyncio.to_thread(lambda: path.read_text().splitlines() if path.exists() else [])


def once(path: Path, seconds: float = 0) -> tuple[str, dict[str, Any]]:
    return ("ledger_once", {"path": str(path), "seconds": seconds})


def results(nodes: list[dict[str, Any]]) -> list[str]:
    return [one["text"] for node in nodes if node["kind"] == "tool_results" for one in node["body"]["results"]]


@asynccontextmanager
async def temporal_loses_its_data(stack: Stack) -> AsyncIterator[None]:
    """Stop Temporal while the body runs; then start a server without any data."""
    killed = stack.pid("temporal")
    with stack.frozen_supervisor():
        stack.signal("temporal", signal.SIGKILL)
        for file in await asyncio.to_thread(lambda: list((stack.root / "temporal").glob("temporal.db*"))):
            file.unlink()
        yield
    await stack.back("temporal", killed)
