"""The methods tasks/… of the tasks extension, and of the version that had tasks without it."""

from typing import Any

from mcp_types import RequestParams
from pydantic import Field, ValidationError
from starlette.responses import Response

from api.conversations import control
from api.faces.mcp.view import (
    ACTIONS,
    FormResponse,
    McpTask,
    Report,
    answer_of,
    await_news,
    find_askable,
    find_requests,
    read_id,
    read_session,
    task_object,
)
from api.http.auth import Call
from api.http.lookup import own_session, session_of
from api.http.problems import finding
from api.routes import input_requests, steering
from api.streams.readers import await_ending
from domain.errors import Conflict, Invalid, Unavailable
from domain.json_object import JsonObject
from domain.sessions.input_request import InputRequest
from domain.sessions.session import Status
from store.keys import Right

CANCEL_SECONDS = 20.0  # a cancelled task ends within this time
RESULT_SECONDS = 24 * 3_600.0
SETTLED = ("request-settled", "already-terminal")


class TaskParams(RequestParams):
    task_id: str = Field(max_length=200)


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(max_length=200)


async def get_task(call: Call, params: TaskParams, *, forms_shown: bool) -> JsonObject:
    call.check_rights(Right.READ)
    session = await session_of(call, params.task_id)
    requests = await find_requests(call, session)
    asked = await find_askable(call, session, requests) if forms_shown and requests else []
    return task_object(await read_session(call, session, requests), asked).dump()


async def update_task(call: Call, params: UpdateParams) -> JsonObject:
    """Record the answers in these responses, after all were checked. A request that was answered, expired or withdrawn
    in the meantime is ignored: somebody else decided while its form was open."""
    call.check_rights(Right.ANSWER, Right.APPROVE, Right.SUPERVISE)
    session = await own_session(call, params.task_id)
    waiting = {one.id: one for one in await find_requests(call, session)}
    given: list[tuple[InputRequest, Any]] = []
    for request_id, response in params.input_responses.items():
        if (request := waiting.get(request_id)) is None:
            continue
        answer = answer_of(request, _read_response(request_id, response))
        if answer is not None:
            await control.check_answer(call.caller, request, answer[0])
            given.append((request, answer[0]))
    # only after all were checked, so that one bad response does not leave the others half answered
    for request, value in given:
        try:
            body = input_requests.AnswerBody(response_to=request.id, input=value)
            await input_requests.answer_request(call, request.session_id, body)
        except Conflict as error:
            if error.type not in SETTLED:
                raise
    return {}


def _read_response(request_id: str, response: Any) -> FormResponse:
    try:
        return FormResponse.model_validate(response)
    except ValidationError:
        pointer = f"/inputResponses/{request_id}"
        problem = finding(pointer, "form", "must have an action: accept, decline or cancel", ACTIONS)
        raise Invalid("This is not a response to a form.", errors=[problem]) from None


async def read_task(call: Call, params: TaskParams) -> McpTask:
    call.check_rights(Right.READ)
    return await read_id(call, params.task_id)


async def cancel_running(call: Call, params: TaskParams) -> McpTask:
    """Cancel a task that has not ended, and return it once it has."""
    session = await session_of(call, params.task_id)
    if not session.status.terminal:
        await cancel_task(call, params)
        session = await await_ending(call, session, CANCEL_SECONDS)
        if session.status is Status.CANCELLED or not session.status.terminal:  # else its end came first
            return await read_session(call, session)
    raise Invalid(f"The task has ended already: {session.status}.")


async def await_result(call: Call, params: TaskParams, report: Report | None) -> McpTask:
    """The task once it has ended, however long that takes."""
    call.check_rights(Right.READ)
    session = await await_news(call, await session_of(call, params.task_id), RESULT_SECONDS, report, asks=False)
    if not session.status.terminal:
        raise Unavailable("The task has not ended yet; ask again for its result.")
    return await read_session(call, session)


async def cancel_task(call: Call, params: TaskParams) -> JsonObject:
    call.check_rights(Right.SUBMIT, Right.SUPERVISE)
    await steering.cancel_task(call, params.task_id, steering.CancelBody(), Response(), None)
    return {}
