"""/tasks/{id}/…: what can be said to a task at work: steer, interrupt, cancel, let go into the background."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from api.auth import Call, Stopper
from api.control import stop as stopping
from api.control.stop import Stop
from api.conversations import steer as words
from api.http.accept_header import accepts_json
from api.http.body import read_model
from api.http.idempotency import Key, check_key
from api.http.lookup import open_conversation, own_session, session_of
from api.http.problems import finding
from api.openapi import BODY, problems, request_body
from api.schemas.conversations import stream_key
from api.schemas.tasks import TaskRecord, task_record
from api.services import ServicesDep
from domain.conversations.requests import Promote
from domain.errors import Conflict, Invalid, NotFound
from domain.ids import derive_id, new_id
from domain.sessions.session import Reason
from domain.task import Strict
from store import children, conversations
from store.sessions import SessionRow

router = APIRouter(tags=["tasks"], dependencies=[Depends(accepts_json)])

_ENDED = {"description": "It had ended; nothing changed", "model": TaskRecord}


class SteerBody(Strict):
    message: str = Field(max_length=200_000)
    message_id: str | None = Field(
        default=None, min_length=1, max_length=100, description="of your own; the same one is heard once"
    )


class Steering(BaseModel):
    session_id: str = Field(description="the session that hears it")
    message_id: str
    stream_key: str


class StopBody(Strict):
    reason: str = Field(default="", max_length=2_000)


class CancelBody(StopBody):
    scope: Literal["session", "tree"] = Field(default="session", description="tree: its subagents too, however deep")
    mode: Literal["hard", "graceful"] = Field(
        default="hard", description="graceful: the tools that run may finish; hard: they are stopped"
    )
    grace: int = Field(default=60_000, ge=1, le=600_000, description="of a graceful one, in milliseconds; then hard")

    @property
    def grace_ms(self) -> int:
        return self.grace if self.mode == "graceful" else 0


async def _steer_body(request: Request, services: ServicesDep) -> SteerBody:
    body = await read_model(request, SteerBody, services.settings.max_body_bytes)
    if not body.message.strip():
        problem = finding("/message", "empty", "there is nothing in it")
        raise Invalid("The message is empty.", type="empty-message", errors=[problem])
    return body


async def _stop_body(request: Request, services: ServicesDep) -> StopBody:
    return await read_model(request, StopBody, services.settings.max_body_bytes, optional=True)


async def _cancel_body(request: Request, services: ServicesDep) -> CancelBody:
    body = await read_model(request, CancelBody, services.settings.max_body_bytes, optional=True)
    if "grace" in body.model_fields_set and body.mode == "hard":
        problem = finding("/grace", "excluded", "only a graceful cancel has one", [])
        raise Invalid("A hard cancel does not wait.", errors=[problem])
    return body


@router.post(
    "/tasks/{task_id}/steer",
    status_code=202,
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=request_body(
        {"application/json": {"schema": SteerBody.model_json_schema(), "example": {"message": "Leave out the tests."}}}
    ),
    summary="Say something to a task at work",
)
async def steer_task(
    call: Stopper,
    task_id: str,
    body: Annotated[SteerBody, Depends(_steer_body)],
    idempotency_key: Key = None,
) -> Steering:
    """It is read before the next step, and the task does not end with it unread. One that has ended is 404."""
    session = await own_session(call, task_id)
    key = body.message_id or check_key(idempotency_key) or new_id()
    message_id = derive_id(session.id, "steer", key)
    pool, tenant, where = call.pool, call.tenant, (session.conversation_id, session.thread_id, message_id)
    if not await conversations.has_message(pool, tenant, message_id):
        _check_running(session)
        await open_conversation(call, session.conversation_id)
        await conversations.add_message(pool, tenant, *where, body.message, author=call.caller.name, untold=True)
    heard: str | None = session.id
    if await conversations.untaken(pool, tenant, [message_id]):
        heard = await words.tell(call, *where, session.id)
    if heard is None:
        _check_running(await session_of(call, task_id))
        raise _not_yet()  # the row says that it runs, its conversation does not know it yet
    return Steering(session_id=heard, message_id=key, stream_key=stream_key(heard))


def _check_running(session: SessionRow) -> None:
    if session.status.terminal:
        raise NotFound("The task has ended.", type="not-running", task_status=session.status)
    if not session.live:
        raise _not_yet()


def _not_yet() -> Conflict:
    return Conflict("The task has yet to begin; try again once it has.", type="not-started")


def _ended(session: SessionRow) -> Conflict:
    return Conflict("The task has ended.", type="already-terminal", task_status=session.status)


@router.post(
    "/tasks/{task_id}/cancel",
    status_code=202,
    response_model=TaskRecord,
    responses={**problems(403, 404, *BODY), 200: _ENDED},
    openapi_extra=request_body(
        {
            "application/json": {
                "schema": CancelBody.model_json_schema(),
                "example": {"reason": "no longer needed", "scope": "tree"},
            }
        },
        required=False,
    ),
    summary="Cancel a task",
)
async def cancel_task(
    call: Stopper,
    task_id: str,
    body: Annotated[CancelBody, Depends(_cancel_body)],
    response: Response,
    idempotency_key: Key = None,
) -> TaskRecord:
    """Accepted at once; the task then ends `cancelled`, with what it had so far. Asking again changes nothing."""
    session = await own_session(call, task_id)
    stop = Stop(Reason.CALLER_CANCEL, body.reason, body.grace_ms, tree=body.scope == "tree")
    record = await _stop(call, session, stop, idempotency_key, response)
    if stop.tree:
        below = await children.descendants(call.pool, call.tenant, task_id)
        await stopping.stop_all(call, below, stop)
    return record


@router.post(
    "/tasks/{task_id}/interrupt",
    status_code=202,
    response_model=TaskRecord,
    responses={**problems(403, 404, 409, *BODY), 200: _ENDED},
    openapi_extra=request_body(
        {"application/json": {"schema": StopBody.model_json_schema(), "example": {"reason": "enough"}}}, required=False
    ),
    summary="Interrupt a task",
)
async def interrupt_task(
    call: Stopper,
    task_id: str,
    body: Annotated[StopBody, Depends(_stop_body)],
    response: Response,
    idempotency_key: Key = None,
) -> TaskRecord:
    """It stops now and keeps what it has; its conversation goes on. Subagents in the background are left alone. One
    that has ended is 404, except to whoever repeats the request that ended it."""
    session = await own_session(call, task_id)
    ours = (session.cancel_requested or {}).get("request_id")
    if ours is None or ours != idempotency_key:
        _check_running(session)
    return await _stop(call, session, Stop(Reason.INTERRUPTED, body.reason), idempotency_key, response)


async def _stop(call: Call, session: SessionRow, stop: Stop, key: str | None, response: Response) -> TaskRecord:
    """Answer 202 if the request was recorded, 200 if the task had already ended."""
    response.status_code = 200
    check_key(key)
    if not session.status.terminal:
        await stopping.stop(call, session, stop, key or "")
        session = await session_of(call, session.id)
        if not session.status.terminal or session.cancel_requested:
            response.status_code = 202
    return task_record(session, call.settings.poll_interval_ms)


@router.post(
    "/tasks/{task_id}/promote",
    status_code=202,
    response_model=TaskRecord,
    responses={
        **problems(403, 404, 409),
        200: {"description": "It was in the background already", "model": TaskRecord},
    },
    summary="Let a subagent that is waited for go on in the background",
)
async def promote_task(call: Stopper, task_id: str, response: Response) -> TaskRecord:
    """Its parent goes on at once; the outcome goes to the mailbox."""
    session = await own_session(call, task_id)
    if session.status.terminal:
        raise _ended(session)
    if session.spawned_by is None:
        raise Conflict("Only a subagent can be promoted.", type="not-blocking")
    if not session.blocking:
        response.status_code = 200
        return task_record(session, call.settings.poll_interval_ms)
    await open_conversation(call, session.conversation_id)
    try:
        request = Promote(request_id=session.id, session_id=session.id)
        await call.services.workflows.promote(call.tenant, session.conversation_id, request)
    except NotFound:
        raise _ended(await session_of(call, task_id)) from None
    return task_record(await session_of(call, task_id), call.settings.poll_interval_ms)
