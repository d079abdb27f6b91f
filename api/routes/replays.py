"""/tasks/{id}/replay: whether the current code makes the same decisions as a task's history."""

import asyncio
import json
import sys

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field

from api.http.auth import Reader
from api.http.body import accepts_json
from api.http.lookup import session_of
from api.openapi import problems
from domain.errors import NotFound, TooMany, Unavailable

router = APIRouter(tags=["tasks"], dependencies=[Depends(accepts_json)])

SECONDS = 60.0
_one_at_a_time = asyncio.Lock()  # a replay takes a whole processor, which requests of this process need


class ReplayVerdict(BaseModel):
    workflow_id: str
    run_id: str
    events: int
    same: bool
    event_id: int | None = Field(description="the first event at which the code decides otherwise")
    event_type: str | None
    reason: str | None


class ReplayReport(BaseModel):
    same: bool
    verdicts: list[ReplayVerdict] = Field(description="of each run of the task and of its conversation")


@router.post("/tasks/{task_id}/replay", responses=problems(404), summary="Replay a task on the current code")
async def replay_task(call: Reader, task_id: str) -> ReplayReport:
    """Calls no model and no tool, and changes nothing. An API process runs one replay at a time."""
    session = await session_of(call, task_id)
    # refused at once and not queued, because a client would wait for minutes without a sign
    if _one_at_a_time.locked():
        raise TooMany("Another replay is running at this server.", retry_after=5)
    async with _one_at_a_time:
        found = await _replayed(session.id)
    if not found:
        raise NotFound("Temporal no longer has a history of this task.")
    return ReplayReport(same=all(one.same for one in found), verdicts=found)


async def _replayed(session_id: str) -> list[ReplayVerdict]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "api.replay_program",
        session_id,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        raise Unavailable("The replay took too long; `errand replay` has no limit.") from None
    finally:
        # also if the client disconnects, which cancels this function: the process would use a processor in vain
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise Unavailable("Temporal cannot be reached, or the replay failed; see `errand replay`.")
    return [ReplayVerdict(**one) for one in json.loads(output)]
