"""Schedules of the platform itself. Every worker creates them at its start if they do not exist."""

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

from domain import wire

SWEEPER = "errand-sweeper"
SWEEPER_EVERY = timedelta(minutes=5)  # a run that has not ended is left alone


async def ensure_swept(client: Client, task_queue: str) -> None:
    try:
        await client.create_schedule(
            SWEEPER,
            Schedule(
                action=ScheduleActionStartWorkflow(
                    wire.SWEEPER, id="sweeper", task_queue=task_queue, static_summary="repairs what was interrupted"
                ),
                spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=SWEEPER_EVERY)]),
                policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(minutes=1)),
            ),
            trigger_immediately=True,
        )
    except ScheduleAlreadyRunningError:
        return
