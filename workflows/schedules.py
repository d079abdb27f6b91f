"""Schedules of the platform itself; every worker asks for them at its start, and the first one makes them."""

from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)

SWEEPER = "errand-sweeper"
SWEEPER_EVERY = timedelta(minutes=5)  # a run that is still going is left alone


async def ensure_swept(client: Client, task_queue: str) -> None:
    try:
        await client.create_schedule(
            SWEEPER,
            Schedule(
                action=ScheduleActionStartWorkflow(
                    "Sweeper", id="sweeper", task_queue=task_queue, static_summary="looks for what fell through"
                ),
                spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=SWEEPER_EVERY)]),
                policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=1)),
            ),
            trigger_immediately=True,
        )
    except ScheduleAlreadyRunningError:
        return
