"""Sweeper: runs the `sweep` activity, which repairs what was interrupted, twice a minute. One run lasts an hour, so
that the list of workflows stays readable; a schedule starts the next."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from domain import wire
from workflows.activity_calls import HEARTBEATS

EVERY = timedelta(seconds=30)
SWEEPS = 120


@workflow.defn(name=wire.SWEEPER)
class Sweeper:
    @workflow.run
    async def run(self, sweeps: int = SWEEPS) -> None:
        for number in range(sweeps):
            if number:
                await workflow.sleep(EVERY, summary="until the next sweep")
            try:
                await workflow.execute_activity(
                    "sweep",
                    start_to_close_timeout=timedelta(minutes=5),
                    heartbeat_timeout=HEARTBEATS.timeout,  # a dead worker delays the next sweep by this time
                    retry_policy=RetryPolicy(maximum_attempts=3),
                    summary="start waiting sessions, close lost ones",
                )
            except ActivityError as error:
                workflow.logger.warning("a sweep failed: %s", error.cause)
