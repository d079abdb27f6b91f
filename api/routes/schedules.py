"""/schedules: agents that are sent a message by the clock."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from errand import models
from fastapi import APIRouter, Depends, Query, Response
from pydantic import AwareDatetime, Field, StringConstraints

from api.http import lookup
from api.http.auth import Call, Reader, Stopper, Submitter
from api.http.body import accepts_json, json_body
from api.http.paging import ListParameters
from api.http.problems import finding, pointers_moved
from api.openapi import BODY, problems, ref, request_body
from api.submission import submit
from api.submission.submit import Checked, SessionPlace
from domain.errors import Conflict, Invalid, NotFound, Unavailable
from domain.ids import is_id
from domain.schedules import DAY_MS, Schedule, ScheduleRules, per_day, time_problem
from domain.sessions.new_session import NewSession, Trigger
from domain.task import Strict, TaskSpec, opening
from store import schedule_runs, schedules

router = APIRouter(tags=["schedules"], dependencies=[Depends(accepts_json)])
MOST = 20_000  # per tenant
MOST_BACKFILLED = 10_000  # ticks of one request
_EXAMPLE = {
    "name": "morning-report",
    "cron": "30 7 * * MON-FRI",
    "timezone": "Europe/Berlin",
    "task": {"agent": "assistant", "input": "Write the morning report."},
}
_PAST = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}


class NewSchedule(ScheduleRules):
    task: TaskSpec = Field(description="what each run does; its input is the message")

    def rules(self) -> ScheduleRules:
        return ScheduleRules(**{name: getattr(self, name) for name in ScheduleRules.model_fields})


class PauseBody(Strict):
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class BackfillBody(Strict):
    start: AwareDatetime = Field(strict=False)
    end: AwareDatetime = Field(strict=False)


class NamedParameters(ListParameters):
    name: str | None = None
    limit: int = Field(default=50, ge=1, le=100)


@router.post(
    "/schedules",
    status_code=201,
    responses=problems(403, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(NewSchedule), "example": _EXAMPLE}}),
    summary="Create a schedule",
)
async def create_schedule(call: Submitter, body: Annotated[NewSchedule, json_body(NewSchedule)]) -> models.Schedule:
    """Each run is a session of the task, in the schedule's own conversation unless it names one. Invalid input is
    refused now, not when a run is due."""
    task = await check_schedule(call, body)
    await check_room(call)
    made = await schedules.create(
        call.pool,
        call.tenant,
        body.rules(),
        run_session(call, body, task),
        task.opening,
        task.files,
        call.caller.created_by,
    )
    if made is None:
        raise Conflict("There is a schedule with this name.", type="name-taken")
    return await _show(call, await sync_schedule(call, made))


@router.get("/schedules", responses=problems(422), summary="List the schedules")
async def list_schedules(call: Reader, query: Annotated[NamedParameters, Query()]) -> models.SchedulePage:
    """Newest first. The next times of a schedule are shown with the schedule itself."""
    found = await schedules.list_all(
        call.pool, call.tenant, name=query.name, before_id=query.after(), limit=query.limit + 1
    )
    listed, more = query.page(found, lambda one: one.id)
    items = [schedule_record(one, await schedule_runs.counts(call.pool, call.tenant, one.id), None) for one in listed]
    return models.SchedulePage(items=items, next_cursor=more)


@router.get("/schedules/{schedule_id}", responses=problems(404), summary="Show a schedule and its next five times")
async def show_schedule(call: Reader, schedule_id: str) -> models.Schedule:
    return await _show(call, await _find(call, schedule_id))


@router.put(
    "/schedules/{schedule_id}",
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(NewSchedule), "example": _EXAMPLE}}),
    summary="Replace a schedule",
)
async def replace_schedule(
    call: Submitter, schedule_id: str, body: Annotated[NewSchedule, json_body(NewSchedule)]
) -> models.Schedule:
    """Its runs, its conversation and its workspace stay."""
    known = await _find_own(call, schedule_id)
    if body.conversation_id not in (None, known.conversation_id) or body.task.context.files:
        pointer = "/task/context/files" if body.task.context.files else "/conversation_id"
        raise Invalid(
            "A schedule keeps its conversation and its files.",
            errors=[finding(pointer, "not_changeable", "make another schedule instead")],
        )
    task = await check_schedule(call, body)
    made = await schedules.replace(
        call.pool,
        call.tenant,
        schedule_id,
        body.rules(),
        run_session(call, body, task),
        opening(task.spec, []),
        call.caller.created_by,
    )
    if made is None:
        raise Conflict("There is a schedule with this name.", type="name-taken")
    return await _show(call, await sync_schedule(call, made))


@router.delete("/schedules/{schedule_id}", status_code=204, responses=problems(403, 404), summary="Delete a schedule")
async def delete_schedule(call: Stopper, schedule_id: str) -> Response:
    """Runs that have begun continue; the conversation and the list of runs stay."""
    await _find_own(call, schedule_id)
    gone = await schedules.delete(call.pool, call.tenant, schedule_id, call.caller.created_by)
    if gone is not None:
        await sync_schedule(call, gone)
    return Response(status_code=204)


@router.post(
    "/schedules/{schedule_id}/pause",
    responses=problems(403, 404, *BODY),
    summary="Pause a schedule",
    openapi_extra=request_body({"application/json": {"schema": PauseBody.model_json_schema()}}, required=False),
)
async def pause_schedule(
    call: Stopper, schedule_id: str, body: Annotated[PauseBody, json_body(PauseBody, optional=True)]
) -> models.Schedule:
    return await _set_paused(call, schedule_id, True, body.reason or f"paused by {call.caller.name}")


@router.post("/schedules/{schedule_id}/resume", responses=problems(403, 404), summary="Resume a schedule")
async def resume_schedule(call: Stopper, schedule_id: str) -> models.Schedule:
    """Ticks that were due while it was paused are not made up for; use backfill for that."""
    return await _set_paused(call, schedule_id, False)


@router.post(
    "/schedules/{schedule_id}/trigger",
    status_code=202,
    responses=problems(403, 404, 503),
    summary="Run a schedule now",
)
async def trigger_schedule(call: Submitter, schedule_id: str) -> models.Triggered:
    """This works even if it is paused or in its quiet hours; the check and the overlap rule still apply."""
    schedule = await _find_own(call, schedule_id)
    at = datetime.now(UTC)
    await call.services.schedules.trigger(schedule, at)
    return models.Triggered(scheduled_at=at)


@router.post(
    "/schedules/{schedule_id}/backfill",
    status_code=202,
    responses=problems(403, 404, 503, *BODY),
    summary="Run a schedule for a past range of time",
    openapi_extra=request_body({"application/json": {"schema": ref(BackfillBody), "example": _PAST}}),
)
async def backfill_schedule(
    call: Submitter, schedule_id: str, body: Annotated[BackfillBody, json_body(BackfillBody)]
) -> models.Schedule:
    """A time that already has a run is left alone."""
    schedule = await _find_own(call, schedule_id)
    _check_range(schedule, body)
    # noted before Temporal starts the ticks: otherwise they would find themselves late and skip their runs
    await schedules.note_backfill(call.pool, schedule, body.start, body.end)
    await call.services.schedules.backfill(schedule.id, body.start, body.end)
    return await _show(call, schedule)


@router.get("/schedules/{schedule_id}/runs", responses=problems(404, 422), summary="List the runs of a schedule")
async def list_schedule_runs(
    call: Reader,
    schedule_id: str,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: AwareDatetime | None = None,
) -> models.RunPage:
    """The latest scheduled times first; `before` continues after the last of a page."""
    found = await _find(call, schedule_id)
    runs = await schedule_runs.list_all(call.pool, call.tenant, found.id, before=before, limit=limit)
    return models.RunPage(items=runs)


async def check_room(call: Call) -> None:
    if await schedules.count(call.pool, call.tenant) >= MOST:
        raise Conflict(f"There may be at most {MOST} schedules.")


async def check_schedule(call: Call, body: NewSchedule) -> Checked:
    if body.at is not None and (why := time_problem(body.at)) is not None:
        found = [finding("/at", "out_of_range", why)]
        raise Invalid("Nothing can be due at this time.", type="invalid-time", errors=found)
    excluded = [name for name in ("history", "history_session") if getattr(body.task.context, name)]
    if body.conversation_id:
        excluded += [name for name in ("files", "archives") if getattr(body.task.context, name)]
    if excluded:
        pointer = f"/task/context/{excluded[0]}"
        raise Invalid(
            "The conversation of the schedule has its own history and files.",
            errors=[finding(pointer, "excluded", "not for a schedule of this conversation")],
        )
    if body.task.config.tree is not None:
        problem = finding("/task/config/tree", "excluded", "runs have their own limits")
        raise Invalid("A schedule's runs have their own limits.", errors=[problem])
    if body.conversation_id is not None:
        await lookup.open_conversation(call, body.conversation_id)
    with pointers_moved("", "/task"):
        return await submit.check_task(call, body.task)


def run_session(call: Call, body: NewSchedule, task: Checked) -> NewSession:
    title = task.spec.title or body.name
    return submit.build_session(task, title, SessionPlace(trigger=Trigger.SCHEDULE), call.caller.created_by)


def _check_range(schedule: Schedule, body: BackfillBody) -> None:
    if body.start >= body.end or body.end > datetime.now(UTC):
        problem = finding("/end", "out_of_range", "after the start, and not in the future")
        raise Invalid("The range is not in the past.", type="invalid-time", errors=[problem])
    days = (body.end - body.start) / timedelta(days=1)
    rules = schedule.rules
    ticks = days * (per_day(rules.cron) if rules.cron else DAY_MS / rules.every if rules.every else 1)
    if ticks > MOST_BACKFILLED:
        problem = finding("/start", "out_of_range", f"at most {MOST_BACKFILLED} ticks at once")
        raise Invalid("This range has too many ticks.", errors=[problem])


async def _set_paused(call: Call, schedule_id: str, paused: bool, reason: str | None = None) -> models.Schedule:
    await _find_own(call, schedule_id)
    made = await schedules.set_paused(call.pool, call.tenant, schedule_id, paused, call.caller.created_by, reason)
    if made is None:
        raise NotFound()
    return await _show(call, await sync_schedule(call, made))


async def _find(call: Call, schedule_id: str) -> Schedule:
    found = await schedules.get(call.pool, call.tenant, schedule_id) if is_id(schedule_id) else None
    if found is None or found.deleted_at is not None:
        raise NotFound("There is no such schedule.")
    return found


async def _find_own(call: Call, schedule_id: str) -> Schedule:
    found = await _find(call, schedule_id)
    lookup.check_owner(call.caller, found)
    return found


async def sync_schedule(call: Call, schedule: Schedule) -> Schedule:
    """Update Temporal from the row; if it is unreachable, a worker does this later."""
    with contextlib.suppress(Unavailable):
        # safe in any order: a version that is older than Temporal's is left alone
        await call.services.schedules.put(schedule)
        await schedules.mark_synced(call.pool, schedule)
    return schedule


async def _show(call: Call, schedule: Schedule) -> models.Schedule:
    counts: dict[str, Any] = await schedule_runs.counts(call.pool, call.tenant, schedule.id)
    return schedule_record(schedule, counts, await call.services.schedules.next_times(schedule.id))


def schedule_record(schedule: Schedule, runs: dict[str, int], next_times: list[datetime] | None) -> models.Schedule:
    # the schedule's own conversation_id comes after that of its rules, which may be null
    known: dict[str, Any] = {**dict(schedule.rules), **dict(schedule)}
    return models.Schedule(
        **{name: known[name] for name in known.keys() & models.Schedule.model_fields.keys()},
        agent=schedule.session.agent,
        agent_version=schedule.session.agent_version,
        runs=runs,
        next_times=[] if schedule.paused else next_times,
    )
