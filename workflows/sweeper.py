"""Sweeper: looks twice a minute for what fell through. One run lasts an hour, so that the list of workflows stays
readable; a schedule starts the next. What is repaired is the `sweep` activity's business."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

EVERY = timedelta(seconds=30)
SWEEPS = 120


@workflow.defn(name="Sweeper")
class Sweeper:
    @workflow.run
    async def run(self, sweeps: int = SWEEPS) -> None:
        for number in range(sweeps):
            if number:
                await workflow.sleep(EVERY, summary="until the next look")
            try:
                await workflow.execute_activity(
                    "sweep",
                    start_to_close_timeout=timedelta(minutes=5),
                    heartbeat_timeout=timedelta(seconds=10),  # so long a dead worker holds up the next look
                    retry_policy=RetryPolicy(maximum_attempts=3),
                    summary="start what waits, close what was lost",
                )
            except ActivityError as error:
                workflow.logger.warning("a sweep failed: %s", error.cause)
