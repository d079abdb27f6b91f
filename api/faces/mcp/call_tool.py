"""tools/call: starts an agent's task, or operates on an existing one."""

import json

from errand import models
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent
from starlette.responses import Response

from api.conversations import fire, run
from api.faces.mcp import tools
from api.faces.mcp.progress import Report, await_news
from api.faces.mcp.read import read, read_id, requests_of
from api.faces.mcp.task_methods import SETTLED, list_tasks
from api.faces.mcp.task_view import McpTask, shown, task_object
from api.faces.mcp.tools import (
    AnswerArguments,
    CancelArguments,
    ListArguments,
    MessageArguments,
    TaskArguments,
    WaitArguments,
)
from api.http.auth import Call
from api.http.body import check_input_length, validate_body
from api.http.idempotency import IdempotencyKey
from api.http.lookup import own_session, session_of
from api.http.problems import finding
from api.routes import input_requests, steering
from api.schemas.conversations import FireBody, MessageBody
from api.submission import submit
from domain.errors import Conflict, Invalid
from domain.json_object import JsonObject
from domain.task import TaskSpec
from store import agents
from store.keys import Right


async def start(call: Call, name: str, arguments: JsonObject, key: str | None) -> McpTask:
    """Start a new task of the agent with this name."""
    found = await agents.current(call.pool, call.tenant, name)
    if found is None or not tools.is_startable(found[1]):
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:100]}")
    call.check_rights(Right.SUBMIT)
    body = tools.task_of(found[1], arguments)
    check_input_length(body, call.settings)
    spec = validate_body(TaskSpec, body, json.dumps(body).encode())
    accepted = await submit.submit(call, spec, IdempotencyKey.of(call, f"tools/call {name}", spec, key))
    return await read_id(call, models.TaskHandle.model_validate_json(accepted.body).task_id)


async def run_task_tool(
    call: Call, name: str, arguments: JsonObject, key: str | None, report: Report | None
) -> CallToolResult:
    model, rights, _, _ = tools.TASK_TOOLS[name]
    call.check_rights(*rights)
    given = validate_body(model, arguments, json.dumps(arguments).encode())
    match given:
        case WaitArguments():
            session = await await_news(call, await session_of(call, given.task_id), given.seconds, report)
            return shown(await read(call, session))
        case AnswerArguments():
            return await _answer(call, given)
        case MessageArguments():
            return await _message(call, given, key)
        case CancelArguments():
            body = steering.CancelBody(reason=given.reason)
            await steering.cancel_task(call, given.task_id, body, Response(), key)
            return shown(await read_id(call, given.task_id))
        case ListArguments():
            return await _listed(call, given)
        case TaskArguments():
            return shown(await read_id(call, given.task_id))


async def _answer(call: Call, given: AnswerArguments) -> CallToolResult:
    session = await own_session(call, given.task_id)
    waiting = await requests_of(call, session)
    request_id = given.request_id
    if request_id is None:
        if len(waiting) != 1:
            listed = [one.id for one in waiting]
            problem = finding("/request_id", "missing", "name what you answer", listed)
            raise Invalid(f"The task waits for {len(waiting)} answers.", errors=[problem])
        request_id = waiting[0].id
    # a subagent may be the one that asks, and an answer is accepted only with the id of its own session
    asking = next((one.session_id for one in waiting if one.id == request_id), session.id)
    note = "The answer was recorded."
    try:
        body = input_requests.AnswerBody(response_to=request_id, input=given.answer)
        await input_requests.answer_request(call, asking, body)
    except Conflict as error:
        if error.type not in SETTLED:
            raise
        note = error.detail  # somebody else answered first, so nothing is left to do
    return shown(await read_id(call, session.id), note)


async def _message(call: Call, given: MessageArguments, key: str | None) -> CallToolResult:
    session = await own_session(call, given.task_id)
    mode = given.mode or ("continue" if session.status.terminal else "steer")
    if given.message is None and mode != "fire":
        raise Invalid("There is no message.", errors=[finding("/message", "missing", "this field is required")])
    if mode == "steer":
        assert given.message is not None
        body = steering.SteerBody(message=given.message)
        steered = await steering.steer_task(call, session.id, body, key)
        return shown(await read_id(call, steered.session_id), "The message was delivered to the running task.")
    call.check_rights(Right.SUBMIT)
    repeat = IdempotencyKey.of(call, f"tools/call task_message {mode}", given, key)
    check_input_length({"input": given.message}, call.settings)
    if mode == "fire":
        turn = await fire.fire(call, session.conversation_id, FireBody(input=given.message), repeat)
    else:
        turn = await run.further(call, session.conversation_id, MessageBody(input=given.message), repeat)
    task = await read_id(call, turn.handle.session_id)
    return shown(task, f"The conversation continues as the task {task.task_id}.")


async def _listed(call: Call, given: ListArguments) -> CallToolResult:
    listing = await list_tasks(call, given)
    lines = [f"{one.task_id} {one.status} {one.agent}: {one.title}" for one in listing.items] or ["There are no tasks."]
    return CallToolResult(
        content=[TextContent(type="text", text="\n".join(lines))], structured_content=listing.model_dump(mode="json")
    )


def created(task: McpTask) -> JsonObject:
    """The handle of a task, for a client of the tasks extension."""
    seed = task_object(task, [])
    kept = ("taskId", "statusMessage", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs")
    return {"resultType": "task", "status": "working", **{name: seed[name] for name in kept}}
