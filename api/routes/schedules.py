"""/schedules: agents that are sent a message by the clock, and missions: those within budgets, until they end."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from errand import models
from fastapi import APIRouter, Query, Response
from pydantic import Field, StringConstraints

from api.conversations import control
from api.conversations.control import Stop
from api.http import lookup
from api.http.auth import Call, Reader, Stopper, Submitter
from api.http.body import json_body
from api.http.paging import ListParameters
from api.http.problems import finding, pointers_moved, refuse
from api.openapi import problems
from api.submission import submit
from api.submission.submit import Checked, SessionPlace
from api.submission.task_files import check_workspaces, collect_files
from domain.errors import Conflict, Invalid, Unavailable
from domain.missions import HoldKind, MissionStatus
from domain.schedules import DAY_MS, Mission, Schedule, ScheduleRules, per_day, time_problem
from domain.sessions.new_session import NewSession, Trigger
from domain.sessions.session import Reason
from domain.task import GivenTime, Id, Strict, TaskContext, TaskSpec, opening
from store import missions, schedule_runs, schedules, workspaces

router = APIRouter(tags=["schedules"])
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


class ScheduleFiles(Strict):
    """The body of PUT /schedules/{schedule_id}/files."""

    files: list[Id] = Field(default_factory=list, max_length=100, description="ids of files")
    archives: list[Id] = Field(default_factory=list, max_length=5, description="ids of tar archives, unpacked")


class PauseBody(Strict):
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class BackfillBody(Strict):
    start: GivenTime
    end: GivenTime


class ScheduleQuery(ListParameters):
    name: str | None = None
    ended: bool = Field(default=False, description="also missions that have ended")
    limit: int = Field(default=50, ge=1, le=100)


@router.post("/schedules", status_code=201, responses=problems(409), summary="Create a schedule")
async def create_schedule(
    call: Submitter, body: Annotated[NewSchedule, json_body(NewSchedule, example=_EXAMPLE)]
) -> models.Schedule:
    """Each run is a session of the task, in the schedule's own conversation unless it names one. Invalid input is
    refused now, not when a run is due. With `mission` it runs within budgets, until it ends."""
    task = await _check_schedule(call, body)
    if await schedules.count(call.pool, call.tenant) >= MOST:
        raise Conflict(f"There may be at most {MOST} schedules.")
    made = await schedules.create(
        call.pool,
        call.tenant,
        body.rules(),
        _run_session(call, body, task),
        task.opening,
        task.files,
        call.caller.created_by,
    )
    if made is None:
        raise Conflict("There is a schedule with this name.", type="name-taken")
    return await _show_changed(call, made)


@router.get("/schedules", summary="List the schedules")
async def list_schedules(call: Reader, query: Annotated[ScheduleQuery, Query()]) -> models.SchedulePage:
    """Newest first, without deleted ones. The next times of a schedule are shown with the schedule itself."""
    found = await schedules.list_all(
        *(call.pool, call.tenant),
        name=query.name,
        ended=query.ended,
        before_id=query.after(),
        limit=query.limit + 1,
    )
    listed, more = query.page(found, lambda one: one.id)
    return models.SchedulePage(items=[await _record(call, one, None) for one in listed], next_cursor=more)


@router.get("/schedules/{schedule_id}", summary="Show a schedule and its next five times")
async def show_schedule(call: Reader, schedule_id: str) -> models.Schedule:
    return await _show(call, await _find(call, schedule_id))


@router.put("/schedules/{schedule_id}", responses=problems(409), summary="Replace a schedule")
async def replace_schedule(
    call: Submitter, schedule_id: str, body: Annotated[NewSchedule, json_body(NewSchedule, example=_EXAMPLE)]
) -> models.Schedule:
    """Its runs, its conversation and its workspace stay."""
    known = await _find_working(call, schedule_id)
    if isinstance(known, Mission) is not (body.mission is not None):
        raise Conflict("A schedule stays a mission, or none; make another one instead.")
    if body.conversation_id not in (None, known.conversation_id) or body.task.context.files:
        pointer = "/task/context/files" if body.task.context.files else "/conversation_id"
        raise refuse(pointer, "not_changeable", "make another schedule instead")
    body = body.model_copy(update={"conversation_id": known.rules.conversation_id})
    task = await _check_schedule(call, body)
    made = await schedules.replace(
        call.pool,
        call.tenant,
        schedule_id,
        body.rules(),
        _run_session(call, body, task),
        opening(task.spec, []),
        call.caller.created_by,
    )
    if made is None:
        raise Conflict("There is a schedule with this name.", type="name-taken")
    return await _show_changed(call, made)


@router.delete("/schedules/{schedule_id}", status_code=204, summary="Delete a schedule")
async def delete_schedule(call: Stopper, schedule_id: str) -> Response:
    """Runs that have begun continue, and the conversation stays. A mission is cancelled instead: its runs are stopped,
    and it can still be read, with its summary. Cancelling again only stops what is left."""
    found = await _find_own(call, schedule_id)
    if isinstance(found, Mission):
        await _cancel(call, found)
    else:
        await schedules.delete(call.pool, call.tenant, schedule_id, call.caller.created_by)
    gone = await schedules.get(call.pool, call.tenant, schedule_id)
    assert gone is not None
    await _sync(call, gone)
    return Response(status_code=204)


async def _cancel(call: Call, mission: Mission) -> None:
    reason, by = f"cancelled by {call.caller.name}", call.caller.created_by
    ended = await missions.end(call.pool, call.tenant, mission.id, MissionStatus.CANCELLED, reason, by)
    # A repeat too, because the first request may have died in between. A sweep stops what is left even so.
    if ended is not None or mission.status is MissionStatus.CANCELLED:
        how = Stop(Reason.CALLER_CANCEL, note=f"the mission {mission.rules.name} was cancelled", tree=True)
        for session in await missions.find_unfinished(call.pool, mission):
            await control.stop_session(call, session, how)


@router.put("/schedules/{schedule_id}/files", responses=problems(409), summary="Replace the files of a schedule")
async def put_schedule_files(
    call: Submitter, schedule_id: str, body: Annotated[ScheduleFiles, json_body(ScheduleFiles)]
) -> models.Schedule:
    """Its workspace then holds exactly these files, and the next check sees them."""
    schedule = await _find_working(call, schedule_id)
    if schedule.rules.conversation_id is not None:
        raise Conflict("This schedule works in the files of another conversation.")
    context = TaskContext.model_construct(files=body.files, archives=body.archives)
    with pointers_moved("/context", ""):
        given = await collect_files(call, TaskSpec.model_construct(context=context))
    await check_workspaces(call, given)
    await workspaces.update(call.pool, call.tenant, schedule.conversation_id, lambda _: given)
    return await _show(call, schedule)


@router.post("/schedules/{schedule_id}/pause", summary="Pause a schedule")
async def pause_schedule(
    call: Stopper, schedule_id: str, body: Annotated[PauseBody, json_body(PauseBody, optional=True)]
) -> models.Schedule:
    await _find_working(call, schedule_id)
    reason = body.reason or f"paused by {call.caller.name}"
    made = await schedules.set_paused(call.pool, call.tenant, schedule_id, True, call.caller.created_by, reason)
    return await _show_changed(call, made)


@router.post("/schedules/{schedule_id}/resume", responses=problems(409), summary="Resume a schedule")
async def resume_schedule(call: Stopper, schedule_id: str) -> models.Schedule:
    """Ticks that were due while it was paused are not made up for; use backfill for that. What waited for a mission
    begins now: messages to its subagents, and runs that were queued when a risk paused it."""
    found = await _find_working(call, schedule_id)
    by = call.caller.created_by
    if not isinstance(found, Mission):
        return await _show_changed(call, await schedules.set_paused(call.pool, call.tenant, found.id, False, by))
    woken = await missions.resume(call.pool, call.tenant, found.id, by=by)
    for conversation_id in {*woken, *([found.conversation_id] if found.paused_by_risk else [])}:
        with contextlib.suppress(Unavailable):  # a sweep reopens it later
            await call.services.workflows.reopen(call.tenant, conversation_id, reload=True)
    return await _show_changed(call, await schedules.get(call.pool, call.tenant, found.id))


@router.post("/schedules/{schedule_id}/trigger", status_code=202, responses=problems(503), summary="Run a schedule now")
async def trigger_schedule(call: Submitter, schedule_id: str) -> models.Triggered:
    """This works even if it is paused or in its quiet hours; the check, the overlap rule, and the pauses and budgets of
    a mission still apply."""
    schedule = await _find_working(call, schedule_id)
    at = datetime.now(UTC)
    await call.services.schedules.trigger(schedule, at)
    return models.Triggered(scheduled_at=at)


@router.post(
    "/schedules/{schedule_id}/backfill",
    status_code=202,
    responses=problems(503),
    summary="Run a schedule for a past range of time",
)
async def backfill_schedule(
    call: Submitter, schedule_id: str, body: Annotated[BackfillBody, json_body(BackfillBody, example=_PAST)]
) -> models.Schedule:
    """A time that already has a run is left alone."""
    schedule = await _find_working(call, schedule_id)
    _check_range(schedule, body)
    # noted before Temporal starts the ticks: otherwise they would find themselves late and skip their runs
    await schedules.note_backfill(call.pool, schedule, body.start, body.end)
    await call.services.schedules.backfill(schedule.id, body.start, body.end)
    return await _show(call, schedule)


@router.get("/schedules/{schedule_id}/runs", summary="List the runs of a schedule")
async def list_schedule_runs(
    call: Reader,
    schedule_id: str,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: GivenTime | None = None,
) -> models.RunPage:
    """The latest scheduled times first; `before` continues after the last of a page."""
    found = await _find(call, schedule_id)
    runs = await schedule_runs.list_all(call.pool, call.tenant, found.id, before=before, limit=limit)
    return models.RunPage(items=runs)


async def _check_schedule(call: Call, body: NewSchedule) -> Checked:
    if body.at is not None and (why := time_problem(body.at)) is not None:
        found = [finding("/at", "out_of_range", why)]
        raise Invalid("Nothing can be due at this time.", type="invalid-time", errors=found)
    if body.mission and body.mission.expires_at and body.mission.expires_at <= datetime.now(UTC):
        found = [finding("/mission/expires_at", "out_of_range", "must be in the future")]
        raise Invalid("A mission expires in the future.", type="invalid-time", errors=found)
    refuse_parts(body.task, "history", "history_session", *(("files", "archives") if body.conversation_id else ()))
    if body.conversation_id is not None:
        await lookup.open_conversation(call, body.conversation_id)
    with pointers_moved("", "/task"):
        return await submit.check_task(call, body.task)


def refuse_parts(task: TaskSpec, *parts: str) -> None:
    """Refuse what a task that is repeated does not bring: these parts of its context, and limits of a tree."""
    found = [f"context/{one}" for one in parts if getattr(task.context, one)]
    found += ["config/tree"] if task.config.tree is not None else []
    if found:
        raise refuse(f"/task/{found[0]}", "excluded", "not for a task that is repeated")


def _run_session(call: Call, body: NewSchedule, task: Checked) -> NewSession:
    title = task.spec.title or body.name
    return submit.build_session(task, title, SessionPlace(trigger=Trigger.SCHEDULE), call.caller.created_by)


def _check_range(schedule: Schedule, body: BackfillBody) -> None:
    if body.start >= body.end or body.end > datetime.now(UTC):
        raise refuse("/end", "out_of_range", "after the start, and not in the future", type="invalid-time")
    days = (body.end - body.start) / timedelta(days=1)
    rules = schedule.rules
    ticks = days * (per_day(rules.cron) if rules.cron else DAY_MS / rules.every if rules.every else 1)
    if ticks > MOST_BACKFILLED:
        raise refuse("/start", "out_of_range", f"at most {MOST_BACKFILLED} ticks at once")


async def _find(call: Call, schedule_id: str) -> Schedule:
    detail = "There is no such schedule."
    found = await lookup.find(call, schedules.get, schedule_id, detail)
    if found.status is not None:
        return lookup.require_found(await missions.settle(call.pool, call.tenant, schedule_id), detail)
    return lookup.require_found(found if found.deleted_at is None else None, detail)


async def _find_own(call: Call, schedule_id: str) -> Schedule:
    found = await _find(call, schedule_id)
    lookup.check_owner(call.caller, found)
    return found


async def _find_working(call: Call, schedule_id: str) -> Schedule:
    found = await _find_own(call, schedule_id)
    if found.deleted_at is not None:
        raise Conflict("The mission has ended.", type=HoldKind.ENDED, mission_status=found.status)
    return found


async def _sync(call: Call, schedule: Schedule) -> Schedule:
    """Update Temporal from the row; if it is unreachable, a worker does this later."""
    with contextlib.suppress(Unavailable):
        # safe in any order: a version that is older than Temporal's is left alone
        await call.services.schedules.put(schedule)
        await schedules.mark_synced(call.pool, schedule)
    return schedule


async def _show_changed(call: Call, changed: Schedule | None) -> models.Schedule:
    return await _show(call, await _sync(call, lookup.require_found(changed)))


async def _show(call: Call, schedule: Schedule) -> models.Schedule:
    return await _record(call, schedule, await call.services.schedules.next_times(schedule.id))


async def _record(call: Call, schedule: Schedule, next_times: list[datetime] | None) -> models.Schedule:
    # the schedule's own conversation_id comes after that of its rules, which may be null
    known: dict[str, Any] = {**dict(schedule.rules), **dict(schedule)}
    known["mission"] = await _mission_record(call, schedule)
    return models.Schedule(
        **{name: known[name] for name in known.keys() & models.Schedule.model_fields.keys()},
        agent=schedule.session.agent,
        agent_version=schedule.session.agent_version,
        runs=await schedule_runs.counts(call.pool, call.tenant, schedule.id),
        next_times=[] if schedule.paused or schedule.deleted_at else next_times,
    )


async def _mission_record(call: Call, schedule: Schedule) -> models.Mission | None:
    if schedule.status is None:
        return None
    mission = Mission(**dict(schedule))
    return models.Mission(
        **mission.model_dump(include={"status", "reason", "summary"}),
        bounds=mission.bounds.model_dump(mode="json"),
        ended_at=mission.deleted_at,
        today=await missions.sum_spent(call.pool, mission, mission.day_start(datetime.now(UTC))),
        total=await missions.sum_spent(call.pool, mission),
        requests=await missions.find_open_requests(call.pool, mission),
    )
