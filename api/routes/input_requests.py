"""/input-requests: questions and approvals that wait for people, and their answers."""

from typing import Annotated, Any

from errand import models
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.conversations import control
from api.http.auth import Answerer, Call, Reader
from api.http.body import json_body
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import own_session, session_of
from api.http.paging import ListParameters, cursor, moment_and_id
from api.http.problems import refuse
from api.openapi import problems
from api.views.conversation import request_record
from domain.errors import Conflict, Refusal
from domain.sessions.input_request import InputRequest, RequestOrder, RequestStatus
from domain.task import Id, Strict
from store import input_requests

router = APIRouter(tags=["input requests"])

_EXAMPLE = {"response_to": "01jd2s0p8m3kq5w7x9z1b2c4d6", "input": {"approved": True, "notes": "Proceed with option B"}}


class RequestQuery(ListParameters):
    status: RequestStatus = RequestStatus.OPEN
    conversation_id: Id | None = None
    own: bool = Field(default=False, description="true: only of tasks that the caller's own key submitted")
    order: RequestOrder = Field(
        default=RequestOrder.NEWEST,
        description="deadline: of open ones, the nearest first; answered: of answered ones, the latest answer first",
    )


_ORDER_OF = {RequestOrder.DEADLINE: RequestStatus.OPEN, RequestOrder.ANSWERED: RequestStatus.ANSWERED}


class AnswerBody(Strict):
    response_to: str = Field(min_length=1, max_length=200)
    input: Any = Field(description="must fit the answer_schema of the request")


class AnswerAccepted(BaseModel):
    task_id: str
    response_to: str
    status: RequestStatus


@router.get("/input-requests", summary="List input requests of all tasks")
async def list_input_requests(call: Reader, query: Annotated[RequestQuery, Query()]) -> models.InputRequestPage:
    if query.order in _ORDER_OF and query.status is not _ORDER_OF[query.order]:
        raise refuse("/order", "wrong_status", f"only with status={_ORDER_OF[query.order]}", place="query")
    filters = query.filters
    items = await input_requests.find(
        call.pool,
        call.tenant,
        status=query.status,
        conversation_id=query.conversation_id,
        created_by=call.caller.created_by if query.own else None,
        order=query.order,
        after=moment_and_id(filters, query.cursor),
        limit=query.limit + 1,
    )
    shown = items[: query.limit]
    if len(items) == len(shown):
        return _page(shown)
    last = shown[-1]
    moments = {RequestOrder.DEADLINE: last.deadline, RequestOrder.ANSWERED: last.answered_at}
    return _page(shown, cursor(filters, last.id, moments.get(query.order)))


@router.get("/tasks/{task_id}/input-requests", summary="List all input requests of a task")
async def list_task_requests(call: Reader, task_id: str) -> models.InputRequestPage:
    session = await session_of(call, task_id)
    items = await input_requests.find(call.pool, call.tenant, status=None, session_id=session.id, limit=200)
    return _page(items)


def _page(found: list[InputRequest], next_cursor: str | None = None) -> models.InputRequestPage:
    return models.InputRequestPage(items=[request_record(one) for one in found], next_cursor=next_cursor)


@router.post(
    "/tasks/{task_id}/input", tags=["core"], status_code=202, responses=problems(409), summary="Answer an input request"
)
async def answer_request(
    call: Answerer,
    task_id: str,
    answer: Annotated[AnswerBody, json_body(AnswerBody, example=_EXAMPLE)],
    idempotency_key: Key = None,
) -> AnswerAccepted:
    """Answers one request once; other requests of the task stay open. A repetition with the same Idempotency-Key gets
    the first response again, even after the task has ended."""
    key = IdempotencyKey.of(call, f"POST /tasks/{task_id}/input", answer, idempotency_key)
    try:
        return await key.replay(call, AnswerAccepted) or await _answer(call, task_id, answer, key)
    except Refusal:
        # a repetition that runs at the same time finds the request already answered
        if (before := await key.replay(call, AnswerAccepted)) is None:
            raise
        return before


async def _answer(call: Call, task_id: str, answer: AnswerBody, key: IdempotencyKey) -> AnswerAccepted:
    session = await own_session(call, task_id)
    if session.status.terminal:
        raise Conflict("The task has ended.", type="already-terminal", task_status=session.status)
    request = await input_requests.get(call.pool, call.tenant, answer.response_to)
    # ids of other sessions get the same refusal as unknown ones
    if request is None or request.session_id != session.id:
        raise control.unknown_request(session)
    await control.check_answer(call.caller, session, request, answer.input)
    value = await control.seal_answer(call, session, request, answer.input)
    accepted = AnswerAccepted(task_id=session.id, response_to=request.id, status=RequestStatus.ANSWERED)
    # the write decides who was first; the check above may be outdated by now
    given = control.build_answer(call.caller, session, request, value)
    record = key.record(accepted.model_dump_json())
    if (settled := await input_requests.answer_all(call.pool, call.tenant, [given], [], record)) is not None:
        raise control.refuse_settled(settled)
    await call.services.workflows.signal_answer(session.id, request.id)
    return accepted
