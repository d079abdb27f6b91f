"""/tasks/{id}/…: control of a running task: steer, interrupt, cancel, promote to the background."""

from typing import Annotated, Literal

from errand import models
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from api.conversations import control
from api.conversations.bodies import stream_key
from api.conversations.control import Stop
from api.http.auth import Call, Stopper
from api.http.body import json_body
from api.http.idempotency import Key, check_key, one_at_a_time
from api.http.lookup import check_open, conversation_of, own_session, session_of
from api.http.problems import refuse
from api.openapi import problems
from api.views.results import task_records
from domain.conversations.requests import Promote
from domain.errors import Conflict, NotFound
from domain.ids import derive_id, new_id
from domain.sessions.new_session import Trigger
from domain.sessions.session import Reason, Scope
from domain.sessions.writes import ThreadMessage
from domain.task import Strict, Text
from store import conversations, threads
from store.sessions import SessionRow

router = APIRouter(tags=["tasks"])

_ENDED = {"description": "The task had already ended; nothing changed", "model": models.Task}


class SteerBody(Strict):
    message: Text = Field(max_length=200_000)
    message_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="your own id; a message with the same id is delivered once",
    )


class Steering(BaseModel):
    session_id: str = Field(description="the session that receives the message")
    message_id: str
    stream_key: str


class StopBody(Strict):
    reason: str = Field(default="", max_length=2_000)


class CancelBody(StopBody):
    scope: Literal[Scope.SESSION, Scope.TREE] = Field(  # inline, so that its schema does not refer to another
        default=Scope.SESSION, description="tree: its subagents too, at any depth"
    )
    mode: Literal["hard", "graceful"] = Field(
        default="hard", description="graceful: running tools may finish; hard: they are stopped"
    )
    grace: int = Field(
        default=60_000, ge=1, le=600_000, description="milliseconds that a graceful cancel waits before it becomes hard"
    )

    @property
    def grace_ms(self) -> int:
        return self.grace if self.mode == "graceful" else 0


def _check_cancel(body: CancelBody) -> None:
    if "grace" in body.model_fields_set and body.mode == "hard":
        raise refuse("/grace", "excluded", "only a graceful cancel has a grace", [])


@router.post(
    "/tasks/{task_id}/steer", status_code=202, responses=problems(409), summary="Send a message to a running task"
)
async def steer_task(
    call: Stopper,
    task_id: str,
    body: Annotated[SteerBody, json_body(SteerBody, example={"message": "Leave out the tests."})],
    idempotency_key: Key = None,
) -> Steering:
    """The task reads the message before its next step, and does not end while it is unread. 404 if the task has
    ended."""
    session = await own_session(call, task_id)
    key = body.message_id or check_key(idempotency_key)
    if key is None:
        return await _send(call, session, body.message, new_id())
    # a repetition at the same time could drop the message that the first one is about to deliver
    async with one_at_a_time(call, derive_id(session.id, "steer", key)):
        return await _send(call, session, body.message, key)


async def _send(call: Call, session: SessionRow, text: str, key: str) -> Steering:
    message_id = derive_id(session.id, "steer", key)
    pool, tenant, where = call.pool, call.tenant, (session.conversation_id, session.thread_id, message_id)
    # a repetition skips these checks: its message is stored and counts, even if the task has ended since
    if not await conversations.has_message(pool, tenant, message_id):
        _check_running(session)
        check_open(await conversation_of(call, session.conversation_id))
        if await threads.is_terminated(pool, tenant, session.thread_id):
            raise Conflict("The thread was terminated.", type="thread-terminated")
        message = ThreadMessage(
            id=message_id,
            conversation_id=session.conversation_id,
            thread_id=session.thread_id,
            text=text,
            author=call.caller.name,
            unsignalled=True,
        )
        await conversations.add_message(pool, tenant, message)
    receiver: str | None = session.id
    # a message that the session has read must not be delivered again
    if await conversations.find_untaken(pool, tenant, [message_id]):
        receiver = await control.deliver_message(call, *where, session.id)
    if receiver is None and await conversations.drop_unsignalled(pool, tenant, message_id):
        _check_running(await session_of(call, session.id))
        raise _not_yet()  # the row is live, but the conversation has not started the session yet
    if receiver is None:  # the conversation has found the message in its rows
        taken = await conversations.get_message_state(pool, tenant, message_id)
        receiver = taken.by if taken and taken.by else session.id
    return Steering(session_id=receiver, message_id=key, stream_key=stream_key(receiver))


def _check_running(session: SessionRow) -> None:
    if session.status.terminal:
        raise NotFound("The task has ended.", type="not-running", task_status=session.status)
    if not session.live:
        raise _not_yet()


def _not_yet() -> Conflict:
    return Conflict("The task has not started yet; try again when it has.", type="not-started")


def _refuse_ended(session: SessionRow) -> Conflict:
    return Conflict("The task has ended.", type="already-terminal", task_status=session.status)


@router.post(
    "/tasks/{task_id}/cancel",
    tags=["core"],
    status_code=202,
    response_model=models.Task,
    responses={200: _ENDED},
    summary="Cancel a task",
)
async def cancel_task(
    call: Stopper,
    task_id: str,
    body: Annotated[
        CancelBody,
        json_body(
            CancelBody,
            optional=True,
            check_model=_check_cancel,
            example={"reason": "no longer needed", "scope": "tree"},
        ),
    ],
    response: Response,
    idempotency_key: Key = None,
) -> models.Task:
    """The request is accepted immediately; the task then ends as `cancelled` and keeps its results so far. A repetition
    changes nothing."""
    session = await own_session(call, task_id)
    stop = Stop(Reason.CALLER_CANCEL, body.reason, body.grace_ms, tree=body.scope is Scope.TREE)
    record = await _stop(call, session, stop, idempotency_key, response)
    if stop.tree:
        # after the task's own stop, so that it cannot start another subagent that this list would miss
        below = await threads.find_descendants(call.pool, call.tenant, task_id)
        await control.stop_sessions(call, below, stop)
    return record


@router.post(
    "/tasks/{task_id}/interrupt",
    status_code=202,
    response_model=models.Task,
    responses={**problems(409), 200: _ENDED},
    summary="Interrupt a task",
)
async def interrupt_task(
    call: Stopper,
    task_id: str,
    body: Annotated[StopBody, json_body(StopBody, optional=True, example={"reason": "enough"})],
    response: Response,
    idempotency_key: Key = None,
) -> models.Task:
    """The task stops now and keeps its results so far; its conversation continues. Background subagents keep running.
    404 if the task has ended, except for a repetition of the request that ended it."""
    session = await own_session(call, task_id)
    ours = session.cancel_requested.request_id if session.cancel_requested else None
    if ours is None or ours != idempotency_key:
        _check_running(session)
    return await _stop(call, session, Stop(Reason.INTERRUPTED, body.reason), idempotency_key, response)


async def _stop(call: Call, session: SessionRow, stop: Stop, key: str | None, response: Response) -> models.Task:
    """Return 202 if the request was recorded, 200 if the task had already ended."""
    response.status_code = 200
    check_key(key)
    if not session.status.terminal:
        await control.stop_session(call, session, stop, key or "")
        session = await session_of(call, session.id)
        if not session.status.terminal or session.cancel_requested:
            response.status_code = 202
    return await _record(call, session)


@router.post(
    "/tasks/{task_id}/promote",
    status_code=202,
    response_model=models.Task,
    responses={**problems(409), 200: {"description": "It was already in the background", "model": models.Task}},
    summary="Let a subagent that its parent waits for continue in the background",
)
async def promote_task(call: Stopper, task_id: str, response: Response) -> models.Task:
    """The parent continues immediately; the outcome goes to the mailbox."""
    session = await own_session(call, task_id)
    if session.status.terminal:
        raise _refuse_ended(session)
    if session.spawned_by is None or session.trigger is Trigger.ATTEMPT:
        raise Conflict("Only a subagent that is not an attempt can be promoted.", type="not-blocking")
    if not session.blocking:
        response.status_code = 200
        return await _record(call, session)
    check_open(await conversation_of(call, session.conversation_id))
    try:
        # the session's id, because a subagent can be promoted once: Temporal answers a repetition with the first result
        request = Promote(request_id=session.id, session_id=session.id)
        await call.services.workflows.promote(call.tenant, session.conversation_id, request)
    except NotFound:
        raise _refuse_ended(await session_of(call, task_id)) from None
    return await _record(call, await session_of(call, task_id))


async def _record(call: Call, session: SessionRow) -> models.Task:
    [record] = await task_records(call, [session])
    return record
