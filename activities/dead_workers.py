"""Calls of a worker that was killed. A new worker ends them, so that they are retried at once. If none starts, the
heartbeat timeout ends them.

Temporal ends a call by its id, whichever attempt runs, and only the worker of an attempt has its token. An attempt that
begins elsewhere in the moment between the last look and that request is ended too: it is repeated, or its outcome is
unknown if it may happen only once, as if its own worker had died.
"""

import asyncio
import logging
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.workflowservice.v1 import ResetStickyTaskQueueRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from domain.ids import conversation_workflow_id, session_workflow_id
from store import sessions, workers
from store.database import TRANSIENT_ERRORS, Pool

log = logging.getLogger("errand.worker")

AT_ONCE = 10
ASK_WITHIN = timedelta(seconds=2)
ALL_WITHIN_S = 5.0  # by then the heartbeat timeout has ended them


async def end_calls(pool: Pool, client: Client, own_id: str) -> None:
    """Run this before the worker takes work: its predecessor may have had the same id."""
    try:
        async with asyncio.timeout(ALL_WITHIN_S):
            if dead := await workers.dead(pool, own_id):
                log.info("ended %d calls of workers that died", await _end_calls(pool, client, dead))
    except TRANSIENT_ERRORS as error:
        log.warning("the calls of dead workers wait for their timeout (%s)", type(error).__name__)


async def _end_calls(pool: Pool, client: Client, dead: set[str]) -> int:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(workflow_id: str) -> int:
        async with gate:
            return await _end_calls_of(client, workflow_id, dead)

    running = await sessions.find_running(pool)
    names = [session_workflow_id(session_id) for session_id, _ in running]
    names += {conversation_workflow_id(conversation_id) for _, conversation_id in running}
    counts = await asyncio.gather(*map(one, names), return_exceptions=True)
    return sum(count for count in counts if isinstance(count, int))


async def _end_calls_of(client: Client, workflow_id: str, dead: set[str]) -> int:
    run_id, held = await _find_held(client, workflow_id, dead)
    if not held:
        return 0
    # Its next workflow task would wait for the dead worker.
    execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
    reset = ResetStickyTaskQueueRequest(namespace=client.namespace, execution=execution)
    await client.workflow_service.reset_sticky_task_queue(reset, timeout=ASK_WITHIN)
    run_id, held = await _find_held(client, workflow_id, dead)  # their next attempts may have begun meanwhile
    # The delay must not be zero: the SDK would leave it out, and the pause of the retry policy would apply.
    error = ApplicationError("The worker died.", type="WorkerDied", next_retry_delay=timedelta(milliseconds=1))
    calls = [client.get_async_activity_handle(workflow_id=workflow_id, run_id=run_id, activity_id=one) for one in held]
    await asyncio.gather(*(call.fail(error, rpc_timeout=ASK_WITHIN) for call in calls))
    return len(held)


async def _find_held(client: Client, workflow_id: str, dead: set[str]) -> tuple[str, list[str]]:
    """The run of a workflow and those of its calls that dead workers have."""
    description = await client.get_workflow_handle(workflow_id).describe(rpc_timeout=ASK_WITHIN)
    started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    calls = description.raw_description.pending_activities
    held = [one.activity_id for one in calls if one.state == started and one.last_worker_identity in dead]
    return description.run_id, held
