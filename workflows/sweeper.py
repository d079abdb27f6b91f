"""Sweeper: runs the `sweep` activity twice a minute. One run lasts an hour, so that the list of workflows stays
readable; a schedule starts the next.

The workers' own look every two seconds (`Sweep.watch`) passes on what requests left, from the rows alone. This workflow
is needed beside it: a sweep asks Temporal about every silent session, and removes and seals what is due. That must
happen once for the platform and not once for each worker, and continue if a worker dies in the middle of it.
"""

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
