"""The task queue in Temporal: the number of waiting tasks, their age, and the workers that poll it."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel, Field
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from domain.errors import Unavailable

WITHIN = timedelta(seconds=3)
_KINDS = {"workflow": TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, "activity": TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY}


class QueueState(BaseModel):
    name: str
    kind: str = Field(description="workflow: decisions that wait; activity: model calls, tools and writes that wait")
    backlog: int = Field(description="about how many tasks wait for a worker")
    oldest_ms: int = Field(description="about how long the oldest of them has waited")
    added_per_second: float = Field(description="over the last 30 seconds")
    taken_per_second: float = Field(description="over the last 30 seconds")
    pollers: int = Field(description="workers that asked for tasks lately")


class QueueClient:
    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._queue = task_queue

    async def states(self) -> list[QueueState]:
        try:
            return list(await asyncio.gather(*(self._state(kind) for kind in _KINDS)))
        except (RPCError, RuntimeError) as error:
            raise Unavailable("Temporal cannot be reached, or does not describe its queues.") from error

    async def _state(self, kind: str) -> QueueState:
        request = DescribeTaskQueueRequest(
            namespace=self._client.namespace,
            task_queue=TaskQueue(name=self._queue),
            task_queue_type=_KINDS[kind],
            report_stats=True,
        )
        found = await self._client.workflow_service.describe_task_queue(request, timeout=WITHIN)
        stats = found.stats
        return QueueState(
            name=self._queue,
            kind=kind,
            backlog=stats.approximate_backlog_count,
            oldest_ms=stats.approximate_backlog_age.ToMilliseconds(),
            added_per_second=round(stats.tasks_add_rate, 2),
            taken_per_second=round(stats.tasks_dispatch_rate, 2),
            pollers=len(found.pollers),
        )
