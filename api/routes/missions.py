"""/missions: agents that run again and again, within budgets, until they are cancelled, expired or out of budget."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Self

from errand import models
from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime, Field, model_validator
from pydantic_core import PydanticCustomError

from api.conversations import control
from api.conversations.control import Stop
from api.http import lookup
from api.http.auth import Call, Reader, Stopper, Submitter
from api.http.body import accepts_json, json_body
from api.http.problems import pointers_moved
from api.openapi import BODY, problems, ref, request_body
from api.routes import schedules as schedule_routes
from api.routes.schedules import NamedParameters, NewSchedule, PauseBody
from api.submission.task_files import check_workspaces, collect_files
from domain.errors import Conflict, NotFound, Unavailable
from domain.ids import is_id, new_id
from domain.missions import Mission, MissionRules, MissionStatus, mission_mark
from domain.schedules import ContextMode, Overlap
from domain.sessions.session import Reason
from domain.task import Id, Strict, TaskContext, TaskSpec
from store import missions, schedule_runs, schedules, workspaces

router = APIRouter(tags=["missions"], dependencies=[Depends(accepts_json)])
_EXAMPLE = {
    "name": "watch-the-tests",
    "every": 900_000,
    "check": {"run": "./run-tests || true"},
    "task": {"agent": "assistant", "input": "Find out why the tests fail, and mend it."},
    "per_day": {"cost_usd": 2},
    "total": {"cost_usd": 20},
    "risks": [{"tool": "bash", "argument": "git push*"}],
}


class NewMission(NewSchedule, MissionRules):
    """The body of POST /missions: a schedule and its bounds."""

    @model_validator(mode="after")
    def _one_run_at_a_time(self) -> Self:
        if self.overlap not in (Overlap.SKIP, Overlap.QUEUE) or self.context is ContextMode.FORK:
            raise PydanticCustomError("excluded", "a mission has one run at a time: overlap skip or queue, no fork")
        if self.conversation_id is not None:
            raise PydanticCustomError("excluded", "a mission has its own conversation")
        if self.expires_at is not None and self.expires_at <= datetime.now(UTC):
            raise PydanticCustomError("past", "a mission expires in the future")
        return self

    def mission_rules(self) -> MissionRules:
        return MissionRules(**{name: getattr(self, name) for name in MissionRules.model_fields})


class MissionFiles(Strict):
    """The body of PUT /missions/{mission_id}/files."""

    files: list[Id] = Field(default_factory=list, max_length=100, description="ids of files")
    archives: list[Id] = Field(default_factory=list, max_length=5, description="ids of tar archives, unpacked")


@router.post(
    "/missions",
    status_code=201,
    responses=problems(403, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(NewMission), "example": _EXAMPLE}}),
    summary="Create a mission",
)
async def create_mission(call: Submitter, body: Annotated[NewMission, json_body(NewMission)]) -> models.Mission:
    """A mission is a schedule with budgets. It needs a total budget or a time at which it expires."""
    await schedule_routes.check_room(call)
    mission_id = new_id()
    task = await schedule_routes.check_schedule(call, body)
    session = schedule_routes.run_session(call, body, task)
    session = session.model_copy(update={"rules": [*session.rules, mission_mark(mission_id)]})
    by = call.caller.created_by
    made = await schedules.create(
        call.pool,
        call.tenant,
        body.rules(),
        session,
        task.opening,
        task.files,
        by,
        # in the transaction of the schedule: without its mission it would run without budgets
        also=lambda connection, schedule: missions.create(connection, schedule, mission_id, body.mission_rules(), by),
    )
    if made is None:
        raise Conflict("There is a schedule with this name.", type="name-taken")
    await schedule_routes.sync_schedule(call, made)
    return await _show(call, await _find(call, mission_id))


@router.get("/missions", responses=problems(422), summary="List the missions")
async def list_missions(call: Reader, query: Annotated[NamedParameters, Query()]) -> models.MissionPage:
    """Newest first."""
    found = await missions.list_all(
        call.pool, call.tenant, name=query.name, before_id=query.after(), limit=query.limit + 1
    )
    listed, more = query.page(found, lambda one: one.id)
    return models.MissionPage(items=[await _show(call, one) for one in listed], next_cursor=more)


@router.get("/missions/{mission_id}", responses=problems(404), summary="Show a mission and what it has spent")
async def show_mission(call: Reader, mission_id: str) -> models.Mission:
    return await _show(call, await _find(call, mission_id))


@router.get("/missions/{mission_id}/runs", responses=problems(404, 422), summary="List the runs of a mission")
async def list_mission_runs(
    call: Reader,
    mission_id: str,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: AwareDatetime | None = None,
) -> models.RunPage:
    """The latest scheduled times first; `before` continues after the last of a page."""
    mission = await _find(call, mission_id)
    found = await schedule_runs.list_all(call.pool, call.tenant, mission.schedule_id, before=before, limit=limit)
    return models.RunPage(items=found)


@router.post(
    "/missions/{mission_id}/run", status_code=202, responses=problems(403, 404, 409, 503), summary="Run a mission now"
)
async def run_mission(call: Submitter, mission_id: str) -> models.Triggered:
    """The run stays within the budgets. A paused mission is refused."""
    mission = await _find_own(call, mission_id)
    _check_working(mission)
    schedule = await schedules.get(call.pool, call.tenant, mission.schedule_id)
    assert schedule is not None
    at = datetime.now(UTC)
    await call.services.schedules.trigger(schedule, at)
    return models.Triggered(scheduled_at=at)


@router.put(
    "/missions/{mission_id}/files",
    responses=problems(403, 404, 409, *BODY),
    summary="Replace the files of a mission",
    openapi_extra=request_body({"application/json": {"schema": MissionFiles.model_json_schema()}}),
)
async def put_mission_files(
    call: Submitter, mission_id: str, body: Annotated[MissionFiles, json_body(MissionFiles)]
) -> models.Mission:
    """The workspace then holds exactly these files, and the next check sees them."""
    mission = await _find_own(call, mission_id)
    _check_working(mission)
    context = TaskContext.model_construct(files=body.files, archives=body.archives)
    with pointers_moved("/context", ""):
        given = await collect_files(call, TaskSpec.model_construct(context=context))
    await check_workspaces(call, given)
    await workspaces.update(call.pool, call.tenant, mission.conversation_id, lambda _: given)
    return await _show(call, mission)


@router.post(
    "/missions/{mission_id}/pause",
    responses=problems(403, 404, 409, *BODY),
    summary="Pause a mission",
    openapi_extra=request_body({"application/json": {"schema": PauseBody.model_json_schema()}}, required=False),
)
async def pause_mission(
    call: Stopper, mission_id: str, body: Annotated[PauseBody, json_body(PauseBody, optional=True)]
) -> models.Mission:
    """A run that has begun continues."""
    mission = await _find_own(call, mission_id)
    _check_working(mission)
    await missions.pause(call.pool, call.tenant, mission_id, body.reason or f"paused by {call.caller.name}")
    return await _show(call, await _find(call, mission_id))


@router.post("/missions/{mission_id}/resume", responses=problems(403, 404, 409), summary="Resume a mission")
async def resume_mission(call: Stopper, mission_id: str) -> models.Mission:
    """What waited for this begins now: messages to its subagents, and runs that were queued when a risk paused it."""
    mission = await _find_own(call, mission_id)
    _check_working(mission)
    woken = await missions.resume(call.pool, call.tenant, mission_id)
    for conversation_id in {*woken, *([mission.conversation_id] if mission.paused_by_risk else [])}:
        with suppress(Unavailable):  # a sweep reopens it later
            await call.services.workflows.reopen(call.tenant, conversation_id, reload=True)
    return await _show(call, await _find(call, mission_id))


@router.post("/missions/{mission_id}/cancel", responses=problems(403, 404), summary="Cancel a mission")
async def cancel_mission(call: Stopper, mission_id: str) -> models.Mission:
    """Its runs are stopped, and the response has its summary. Cancelling again only stops what is left."""
    mission = await _find_own(call, mission_id)
    reason, by = f"cancelled by {call.caller.name}", call.caller.created_by
    ended = await missions.end(call.pool, call.tenant, mission_id, MissionStatus.CANCELLED, reason, by)
    # A repeat too, because the first request may have died in between. A sweep stops what is left even so.
    if ended is not None or mission.status is MissionStatus.CANCELLED:
        how = Stop(Reason.CALLER_CANCEL, note=f"the mission {mission.name} was cancelled", tree=True)
        for session in await missions.find_unfinished(call.pool, mission):
            await control.stop_session(call, session, how)
        schedule = await schedules.get(call.pool, call.tenant, mission.schedule_id)
        if schedule is not None:
            await schedule_routes.sync_schedule(call, schedule)
    return await _show(call, await _find(call, mission_id))


async def _find(call: Call, mission_id: str) -> Mission:
    found = await missions.settle(call.pool, call.tenant, mission_id) if is_id(mission_id) else None
    if found is None:
        raise NotFound("There is no such mission.")
    return found


async def _find_own(call: Call, mission_id: str) -> Mission:
    found = await _find(call, mission_id)
    lookup.check_owner(call.caller, found)
    return found


def _check_working(mission: Mission) -> None:
    if mission.status is not MissionStatus.WORKING:
        raise Conflict("The mission has ended.", type="mission-ended", mission_status=mission.status)


async def _show(call: Call, mission: Mission) -> models.Mission:
    return models.Mission(
        **mission.model_dump(exclude={"tenant", "timezone"}),
        today=await missions.sum_spent(call.pool, mission, mission.day_start(datetime.now(UTC))),
        total=await missions.sum_spent(call.pool, mission),
        requests=await missions.find_open_requests(call.pool, mission),
    )
