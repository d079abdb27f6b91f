"""tasks/get, tasks/update and tasks/cancel of the tasks extension."""

from typing import Any

from mcp_types import RequestParams
from pydantic import Field, ValidationError
from starlette.responses import Response

from api.auth import Call
from api.control import answer as answering
from api.faces.mcp import forms
from api.faces.mcp.read import askable, read, requests_of
from api.faces.mcp.task_view import task_object
from api.http.lookup import own_session, session_of
from api.http.problems import finding
from api.routes import input_requests, steering
from domain.errors import Conflict, Invalid
from domain.json_object import JsonObject
from domain.sessions.input_request import InputRequest
from store.keys import Right

SETTLED = ("request-settled", "already-terminal")


class TaskParams(RequestParams):
    task_id: str = Field(max_length=200)


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(max_length=200)


async def get(call: Call, params: TaskParams, *, forms_shown: bool) -> JsonObject:
    call.check_rights(Right.READ)
    session = await session_of(call, params.task_id)
    requests = await requests_of(call, session)
    asked = await askable(call, session, requests) if forms_shown and requests else []
    return task_object(await read(call, session, requests), asked)


async def update(call: Call, params: UpdateParams) -> JsonObject:
    """Record the answers in these responses, after all were checked. A request that was answered, expired or withdrawn
    in the meantime is ignored: somebody else decided while its form was open."""
    call.check_rights(Right.ANSWER, Right.APPROVE, Right.SUPERVISE)
    session = await own_session(call, params.task_id)
    waiting = {one.id: one for one in await requests_of(call, session)}
    given: list[tuple[InputRequest, Any]] = []
    for request_id, response in params.input_responses.items():
        if (request := waiting.get(request_id)) is None:
            continue
        answer = forms.answer_of(request, _response(request_id, response))
        if answer is not None:
            answering.check(call.caller, request, answer[0])
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


def _response(request_id: str, response: Any) -> forms.FormResponse:
    try:
        return forms.FormResponse.model_validate(response)
    except ValidationError:
        pointer = f"/inputResponses/{request_id}"
        problem = finding(pointer, "form", "must have an action: accept, decline or cancel", forms.ACTIONS)
        raise Invalid("This is not a response to a form.", errors=[problem]) from None


async def cancel(call: Call, params: TaskParams) -> JsonObject:
    call.check_rights(Right.SUBMIT, Right.SUPERVISE)
    await steering.cancel_task(call, params.task_id, steering.CancelBody(), Response(), None)
    return {}
