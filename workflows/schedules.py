"""Our schedules in Temporal: created, changed and removed to match their rows. Temporal computes the times."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from temporalio import client as temporal
from temporalio.api.workflowservice.v1 import ListScheduleMatchingTimesRequest
from temporalio.client import (
    Client,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleBackfill,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from domain import wire
from domain.errors import Unavailable
from domain.ids import schedule_workflow_id
from domain.schedules import Schedule, TickInput, Timing, expressions, tick_key
from workflows.client import is_away
from workflows.ui import fair_priority

WITHIN = timedelta(seconds=5)
_PREFIX = schedule_workflow_id("")


class ScheduleClient:
    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._queue = task_queue

    async def put(self, schedule: Schedule) -> None:
        """Update Temporal's schedule from the row; a newer version that arrived before is left alone."""
        if schedule.deleted_at is not None:
            with contextlib.suppress(UnknownError), _reached():
                await self._handle(schedule.id).delete(rpc_timeout=WITHIN)
            return
        wanted, now = self._build_schedule(schedule), datetime.now(UTC)
        # It may have been due before Temporal has it. Not if it was changed: then it may have had other times, or none.
        since = max(schedule.created_at, now - timedelta(milliseconds=schedule.rules.catch_up))
        missed = [_span(since, now)] if schedule.version == 1 and since < now else []

        def update_known(known: ScheduleUpdateInput) -> ScheduleUpdate | None:
            newer = _version(known.description.schedule.state.note) > schedule.version
            return None if newer else ScheduleUpdate(wanted)

        with _reached():
            try:
                await self._client.create_schedule(
                    schedule_workflow_id(schedule.id), wanted, backfill=missed, rpc_timeout=WITHIN
                )
            except ScheduleAlreadyRunningError:
                await self._handle(schedule.id).update(update_known, rpc_timeout=WITHIN)

    async def next_times(self, schedule_id: str, count: int = 5) -> list[datetime] | None:
        """None if Temporal does not answer, or does not know the schedule yet."""
        try:
            description = await self._handle(schedule_id).describe(rpc_timeout=WITHIN)
        except (RPCError, RuntimeError):
            return None
        return list(description.info.next_action_times[:count])

    async def trigger(self, schedule: Schedule, at: datetime) -> None:
        """Start one tick at once, in addition to the regular ones; `at` is its key."""
        start = TickInput(tenant=schedule.tenant, schedule_id=schedule.id, at=at)
        with contextlib.suppress(WorkflowAlreadyStartedError), _reached():
            await self._client.start_workflow(
                wire.TICK,
                start,
                id=f"{schedule_workflow_id(schedule.id)}-{tick_key(at)}",
                task_queue=self._queue,
                task_timeout=wire.TASK_TIMEOUT,
                static_summary=f"{schedule.rules.name} · triggered",
                priority=fair_priority(schedule.tenant),
                rpc_timeout=WITHIN,
            )

    async def backfill(self, schedule_id: str, start: datetime, end: datetime) -> None:
        """Run the ticks of a past range now; ticks that already have a run do nothing."""
        with _reached():
            await self._handle(schedule_id).backfill(_span(start, end), rpc_timeout=WITHIN)

    async def is_due(self, schedule_id: str, after: datetime, until: datetime) -> bool:
        """Whether the schedule is due after the first time and not later than the second."""
        request = ListScheduleMatchingTimesRequest(
            namespace=self._client.namespace, schedule_id=schedule_workflow_id(schedule_id)
        )
        request.start_time.FromDatetime(after)
        request.end_time.FromDatetime(until)
        try:
            found = await self._client.workflow_service.list_schedule_matching_times(request, timeout=WITHIN)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return any(after < time.ToDatetime(UTC) <= until for time in found.start_time)

    async def ids(self) -> list[str]:
        """Our schedules that Temporal has."""
        listed = await self._client.list_schedules(rpc_timeout=WITHIN)
        return [one.id.removeprefix(_PREFIX) async for one in listed if one.id.startswith(_PREFIX)]

    def _handle(self, schedule_id: str) -> temporal.ScheduleHandle:
        return self._client.get_schedule_handle(schedule_workflow_id(schedule_id))

    def _build_schedule(self, schedule: Schedule) -> temporal.Schedule:
        once = schedule.rules.at is not None
        return temporal.Schedule(
            action=ScheduleActionStartWorkflow(
                wire.TICK,
                TickInput(tenant=schedule.tenant, schedule_id=schedule.id),
                id=schedule_workflow_id(schedule.id),
                task_queue=self._queue,
                task_timeout=wire.TASK_TIMEOUT,
                static_summary=schedule.rules.name,
                priority=fair_priority(schedule.tenant),
            ),
            spec=spec_of(schedule.rules),
            # Start every tick. Its transaction decides what it does while an earlier run is not over.
            policy=SchedulePolicy(
                overlap=ScheduleOverlapPolicy.ALLOW_ALL,
                catchup_window=timedelta(milliseconds=schedule.rules.catch_up),
            ),
            state=ScheduleState(
                note=f"version {schedule.version}",
                paused=schedule.paused,
                limited_actions=once,
                remaining_actions=1 if once else 0,
            ),
        )


def _span(start: datetime, end: datetime) -> ScheduleBackfill:
    return ScheduleBackfill(start_at=start, end_at=end, overlap=ScheduleOverlapPolicy.ALLOW_ALL)


def spec_of(timing: Timing) -> ScheduleSpec:
    jitter = timedelta(milliseconds=timing.jitter) if timing.jitter else None
    if timing.cron is not None:
        return ScheduleSpec(cron_expressions=expressions(timing.cron), time_zone_name=timing.timezone, jitter=jitter)
    if timing.every is not None:
        return ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(milliseconds=timing.every))], jitter=jitter)
    assert timing.at is not None
    at = timing.at.astimezone(UTC)
    return ScheduleSpec(
        calendars=[
            ScheduleCalendarSpec(
                second=[ScheduleRange(at.second)],
                minute=[ScheduleRange(at.minute)],
                hour=[ScheduleRange(at.hour)],
                day_of_month=[ScheduleRange(at.day)],
                month=[ScheduleRange(at.month)],
                year=[ScheduleRange(at.year)],
            )
        ],
        jitter=jitter,
    )


def _version(note: str | None) -> int:
    number = (note or "").removeprefix("version ")
    return int(number) if number.isdecimal() else 0


class UnknownError(Unavailable):
    """Temporal does not know the schedule, or not yet."""


@contextlib.contextmanager
def _reached() -> Iterator[None]:
    """Raise what the caller may try again as such."""
    try:
        yield
    except (RPCError, RuntimeError) as error:
        detail = "Temporal is unreachable, or does not know the schedule yet; try again shortly."
        if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
            raise UnknownError(detail) from error
        if is_away(error):
            raise Unavailable(detail) from error
        raise
