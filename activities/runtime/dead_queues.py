"""Workflow tasks of a dead worker. Temporal keeps the next task of a session for the worker that has the session in
memory; if that one was killed, the task would wait for its timeout. Another worker frees such tasks at once."""

import asyncio
import contextlib
import logging
from collections.abc import Collection
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, TaskQueueKind, WorkflowTaskFailedCause
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryReverseRequest,
    PollWorkflowTaskQueueRequest,
    RespondWorkflowTaskFailedRequest,
    ShutdownWorkerRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from store import workers
from store.database import TRANSIENT_ERRORS, Pool

log = logging.getLogger("errand.worker")

WORKFLOWS = 50  # the latest that are open: the histories of some of them name the queue
EVENTS = 50  # of each
AT_ONCE = 10
ASK_WITHIN = timedelta(seconds=2)
POLL_WITHIN = timedelta(seconds=3)  # Temporal refuses 2 as too short, and answers a second early
MOST_TASKS = 10_000
PAUSE_S = 5


class DeadQueues:
    def __init__(self, pool: Pool, client: Client, task_queue: str, own_id: str) -> None:
        self._pool = pool
        self._client = client
        self._task_queue = task_queue
        self._own_id = own_id
        self._known: set[str] = set()

    async def watch(self) -> None:
        """Free the tasks of other workers that die while this one runs: none may be started in their place."""
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                dead = await workers.dead(self._pool, self._own_id) - {self._own_id}
                self._known &= dead
                if new := dead - self._known:
                    found = await self.find(new)
                    # one of them may have started again under its name, and taken work
                    new &= await workers.dead(self._pool, self._own_id)
                    await self.free({queue for queue in found if _owner(queue) in new})
                    self._known |= new
            except TRANSIENT_ERRORS as error:
                log.warning("did not look for dead workers (%s)", type(error).__name__)

    async def find(self, dead: Collection[str]) -> set[str]:
        """The queues that belong to these workers alone. A new worker must call this before it takes work, because it
        may have the name of a dead one."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(workflow_id: str) -> set[str]:
            async with gate:
                return await _queues(self._client, workflow_id)

        query = f"ExecutionStatus = 'Running' AND TaskQueue = '{self._task_queue}'"
        try:
            latest = [listed.id async for listed in self._client.list_workflows(query, limit=WORKFLOWS)]
        except RPCError as error:
            log.warning("did not find the queues of dead workers (%s)", error.status.name)
            return set()
        found = await asyncio.gather(*map(one, latest), return_exceptions=True)
        names = set().union(*(queues for queues in found if isinstance(queues, set)))
        return {queue for queue in names if _owner(queue) in dead}

    async def free(self, queues: Collection[str]) -> None:
        """Release the tasks that wait in these queues, and let Temporal put no more there."""
        for queue in queues:
            try:
                if freed := await _free(self._client, self._task_queue, queue):
                    log.info("freed %d workflow tasks of a worker that died", freed)
            except RPCError as error:
                log.warning("workflow tasks of a dead worker wait for their timeout (%s)", error.status.name)


def _owner(queue: str) -> str:
    """The worker of a queue, whose name is that of the worker and an id."""
    return queue.rpartition("-")[0]


async def _queues(client: Client, workflow_id: str) -> set[str]:
    """The queues of single workers in the latest events of a workflow."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id),
        maximum_page_size=EVENTS,
    )
    page = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=ASK_WITHIN)
    scheduled = [
        event.workflow_task_scheduled_event_attributes.task_queue
        for event in page.history.events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED
    ]
    return {queue.name for queue in scheduled if queue.kind == TaskQueueKind.TASK_QUEUE_KIND_STICKY}


async def _free(client: Client, task_queue: str, queue: str) -> int:
    sticky = TaskQueue(name=queue, kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name=task_queue)
    poll = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=sticky, identity=client.identity)
    closing = ShutdownWorkerRequest(
        namespace=client.namespace, sticky_task_queue=queue, identity=_owner(queue), reason="it died"
    )
    # Before the polls, which find what waits already, and after them: a queue that is polled counts as one in use.
    await client.workflow_service.shutdown_worker(closing, timeout=ASK_WITHIN)
    freed = 0
    while freed < MOST_TASKS:
        task = await client.workflow_service.poll_workflow_task_queue(poll, timeout=POLL_WITHIN)
        if not task.task_token:
            break
        freed += 1
        failed = RespondWorkflowTaskFailedRequest(
            namespace=client.namespace,
            task_token=task.task_token,
            cause=WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
            identity=client.identity,
        )
        with contextlib.suppress(RPCError):  # its workflow may have been terminated
            await client.workflow_service.respond_workflow_task_failed(failed, timeout=ASK_WITHIN)
    await client.workflow_service.shutdown_worker(closing, timeout=ASK_WITHIN)
    return freed
