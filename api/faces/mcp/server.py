"""The server: maps each method to its function, those of tasks, of the extension and of the version that had tasks
without it, included. Each response passes `_convert_errors`, which converts our refusals."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    BlobResourceContents,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
    Task,
    TextContent,
    TextResourceContents,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field, ValidationError
from starlette.responses import Response

from api.conversations import control
from api.faces.mcp import tools
from api.faces.mcp.tools import ListArguments, run_task_tool, show_created, start_task
from api.faces.mcp.view import (
    ACTIONS,
    SETTLED,
    FormResponse,
    McpTask,
    Report,
    answer_of,
    await_news,
    earlier_task_object,
    final_result,
    find_askable,
    find_requests,
    read_id,
    read_session,
    show_task,
    task_object,
)
from api.http.auth import Call
from api.http.body import services_of
from api.http.lookup import own_session, session_of
from api.http.problems import URN, refuse, respond
from api.routes import input_requests, steering
from api.routes import tasks as task_routes
from api.streams.readers import await_ending
from domain.errors import Conflict, Invalid, NotFound, Unavailable
from domain.ids import current_tenant, is_id, new_id
from domain.json_object import JsonObject
from domain.sessions.input_request import InputRequest
from domain.sessions.session import TERMINAL, Status
from store import agents, files
from store.keys import Right

TASKS = "io.modelcontextprotocol/tasks"
EARLIER_TASKS = "2025-11-25"  # the version that has tasks of its own; later ones have the extension
TASK_CAPABILITY: JsonObject = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
RELATED_TASK = "io.modelcontextprotocol/related-task"  # in the _meta of a result
IDEMPOTENCY_KEY = "errand/idempotencyKey"  # in a request's _meta
CANCEL_SECONDS = 20.0  # a cancelled task ends within this time
RESULT_SECONDS = 24 * 3_600.0
PAGE = 100  # agents in a page of tools
MOST_FINDINGS = 20  # findings
INSTRUCTIONS = (
    "Each agent is a tool that starts a durable task. The task continues without this connection: keep its task_id, "
    "and call task_wait until it has ended. Questions and approvals are for the person: ask, then call task_answer."
)
LISTED = 20
MAX_BYTES = 1_048_576  # a resource is one JSON text, held whole by both sides
JSON = "application/json"
TEMPLATES = [
    ResourceTemplate(
        name="result",
        uri_template="errand://tasks/{task_id}/result",
        description="The result of a task that has ended: output, artifacts, effects, sources, usage.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        name="trace",
        uri_template="errand://tasks/{task_id}/trace",
        description="Every step of a task: model and tool calls, their times, tokens and cost.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        name="file", uri_template="errand://files/{file_id}", description="An artifact or an uploaded file."
    ),
]
_REQUESTS = (401, 403, 429)  # about the caller's rights and rates, not about the content
_changes: set[asyncio.Task[Any]] = set()  # strong references, because the event loop keeps only weak ones
Context = ServerRequestContext[Any, Any]
R = TypeVar("R")
Q = TypeVar("Q")


class TaskParams(RequestParams):
    task_id: str = Field(max_length=200)


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(max_length=200)


def build_server() -> Server[Any]:
    server: Server[Any] = Server(
        "errand",
        title="Errand",
        instructions=INSTRUCTIONS,
        # None of our arguments is mirrored in a header. Without this the library would list all tools at every call.
        get_tool_input_schema=lambda name: None,
        on_list_tools=_list_tools,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
    )
    server.extensions[TASKS] = {}
    server.middleware.append(_add_earlier_tasks)
    server.add_request_handler("tools/call", CallToolRequestParams, _call_tool)
    server.add_request_handler("tasks/get", TaskParams, _get_task)
    server.add_request_handler("tasks/update", UpdateParams, _update_task)
    server.add_request_handler("tasks/cancel", TaskParams, _cancel_task)
    server.add_request_handler("tasks/result", TaskParams, _await_result)
    server.add_request_handler("tasks/list", PaginatedRequestParams, _list_tasks)
    return server


async def _add_earlier_tasks(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Tasks as the version 2025-11-25 has them, which the library does not know: the capability, and a call that asks
    for a task and is answered with one."""
    if ctx.method == "initialize":
        answer = await call_next(ctx)
        if isinstance(answer, dict) and answer.get("protocolVersion") == EARLIER_TASKS:
            capabilities = {**answer.get("capabilities", {}), "tasks": TASK_CAPABILITY}
            return {**answer, "capabilities": capabilities}
        return answer
    if not (ctx.method == "tools/call" and _has_earlier_tasks(ctx) and "task" in (ctx.params or {})):
        return await call_next(ctx)
    try:
        params = CallToolRequestParams.model_validate(ctx.params, by_name=False)
    except ValidationError:
        raise MCPError(INVALID_PARAMS, "Invalid request parameters") from None
    if params.name in tools.TASK_TOOLS:
        raise MCPError(METHOD_NOT_FOUND, f"{params.name} cannot be called as a task.")
    task = await _convert_errors(_finish(start_task(_call_of(ctx), params.name, params.arguments or {}, _key(ctx))))
    return {"task": _dump(earlier_task_object(task).model_copy(update={"status": "working"}))}


def _call_of(context: Context) -> Call:
    """The request's services and the caller that our middleware identified. The library may answer in its own task;
    the tenant is set again there, because a task without one sees no rows."""
    assert context.request is not None
    call = Call(services_of(context.request), context.request.state.caller)
    current_tenant.set(call.tenant)
    return call


async def _convert_errors(answer: Awaitable[R]) -> R:
    try:
        return await answer
    except MCPError:
        raise
    except Exception as error:
        status, type, text = _problem(error)
        code = INTERNAL_ERROR if status >= 500 else INVALID_REQUEST if status in _REQUESTS else INVALID_PARAMS
        raise MCPError(code, text, {"type": type}) from None


def _answers(handle: Callable[[Context, Call, Q], Awaitable[R]]) -> Callable[[Context, Q], Awaitable[R]]:
    """A method of the protocol: it is given the call, and its refusals are converted."""

    async def answer(context: Context, params: Q) -> R:
        return await _convert_errors(handle(context, _call_of(context), params))

    return answer


async def _finish(work: Coroutine[Any, Any, R]) -> R:
    """Finish a change even if the client hangs up, which makes the library cancel the request."""
    task = asyncio.create_task(work)
    _changes.add(task)
    task.add_done_callback(_changes.discard)
    return await asyncio.shield(task)


@_answers
async def _list_tools(context: Context, call: Call, params: PaginatedRequestParams | None) -> ListToolsResult:
    after = params.cursor if params and params.cursor else ""
    listed = [] if after else tools.task_tools(call.caller.rights)
    if not call.caller.may(Right.READ, Right.SUBMIT):
        return ListToolsResult(tools=listed)
    known = await agents.list_current(call.pool, call.tenant)
    found = sorted((one for _, one in known if tools.is_startable(one)), key=lambda one: one.name)
    # the cursor is a name and not a position, so that a new agent does not shift the next page
    page = [one for one in found if one.name > after][: PAGE + 1]
    more = page[PAGE - 1].name if len(page) > PAGE else None
    return ListToolsResult(tools=[*listed, *map(tools.agent_tool, page[:PAGE])], next_cursor=more)


async def _call_tool(context: Context, params: CallToolRequestParams) -> HandlerResult:
    call, name, arguments = _call_of(context), params.name, params.arguments or {}
    try:
        key = _key(context)
        # it changes nothing, and a client that hangs up should free its stream slot at once
        if name == "task_wait":
            return await run_task_tool(call, name, arguments, key, _reporting(context))
        if name in tools.TASK_TOOLS:
            return await _finish(run_task_tool(call, name, arguments, key, None))
        task = await _finish(start_task(call, name, arguments, key))
    except MCPError:
        raise
    except Exception as error:
        _, _, text = _problem(error)
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
    return show_created(task) if _declares_tasks(context) else show_task(task)


def _key(context: Context) -> str | None:
    given = (context.meta or {}).get(IDEMPOTENCY_KEY)
    return given if given is None else str(given)


def _reporting(context: Context) -> Report | None:
    if (context.meta or {}).get("progress_token") is None:
        return None

    async def report(number: int, line: str) -> None:
        await context.session.report_progress(number, message=line)

    return report


def _declares_tasks(context: Context) -> bool:
    """Whether this very request declares the extension. Neither the client's name nor an earlier request counts."""
    known = context.session.client_capabilities
    modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    return modern and known is not None and TASKS in (known.extensions or {})


def _has_earlier_tasks(context: Context) -> bool:
    return context.protocol_version == EARLIER_TASKS


def _check_task_request(context: Context, params: TaskParams) -> None:
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)
    if not _declares_tasks(context):
        required: JsonObject = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", required)
    assert context.request is not None
    # a proxy may route or filter by this header, so that it must not say anything else than the body
    if decode_header_value(context.request.headers.get(MCP_NAME_HEADER)) != params.task_id:
        raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")


@_answers
async def _get_task(context: Context, call: Call, params: TaskParams) -> HandlerResult:
    if _has_earlier_tasks(context):
        call.check_rights(Right.READ)
        return _dump(earlier_task_object(await read_id(call, params.task_id)))
    _check_task_request(context, params)
    call.check_rights(Right.READ)
    session = await session_of(call, params.task_id)
    requests = await find_requests(call, session)
    known = context.session.client_capabilities
    forms = known.elicitation if known else None
    shows_forms = forms is not None and (forms.form is not None or forms.url is None)
    asked = await find_askable(call, session, requests) if shows_forms and requests else []
    return task_object(await read_session(call, session, requests), asked).dump()


def _dump(task: Task) -> JsonObject:
    # here and not in the library, which would leave out a ttl that is null
    return task.model_dump(mode="json", by_alias=True)


@_answers
async def _update_task(context: Context, call: Call, params: UpdateParams) -> HandlerResult:
    _check_task_request(context, params)
    return await _finish(_record_answers(call, params))


async def _record_answers(call: Call, params: UpdateParams) -> JsonObject:
    """Record the answers in these responses, after all were checked. A request that was answered, expired or withdrawn
    in the meantime is ignored: somebody else decided while its form was open."""
    call.check_rights(Right.ANSWER, Right.APPROVE, Right.SUPERVISE)
    session = await own_session(call, params.task_id)
    waiting = {one.id: one for one in await find_requests(call, session)}
    given: list[tuple[InputRequest, Any]] = []
    for request_id, response in params.input_responses.items():
        if (request := waiting.get(request_id)) is None:
            continue
        try:
            form = FormResponse.model_validate(response)
        except ValidationError:
            pointer = f"/inputResponses/{request_id}"
            raise refuse(pointer, "form", "must have an action: accept, decline or cancel", ACTIONS) from None
        answer = answer_of(request, form)
        if answer is not None:
            await control.check_answer(call.caller, session, request, answer[0])
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


@_answers
async def _cancel_task(context: Context, call: Call, params: TaskParams) -> HandlerResult:
    if _has_earlier_tasks(context):
        task = await _finish(cancel_running(call, params))
        return _dump(earlier_task_object(task).model_copy(update={"status": "cancelled"}))
    _check_task_request(context, params)
    return await _finish(cancel(call, params))


async def cancel_running(call: Call, params: TaskParams) -> McpTask:
    """Cancel a task that has not ended, and return it once it has."""
    session = await session_of(call, params.task_id)
    if not session.status.terminal:
        await cancel(call, params)
        session = await await_ending(call, session, CANCEL_SECONDS)
        if session.status is Status.CANCELLED or not session.status.terminal:  # else its end came first
            return await read_session(call, session)
    raise Invalid(f"The task has ended already: {session.status}.")


async def cancel(call: Call, params: TaskParams) -> JsonObject:
    call.check_rights(Right.SUBMIT, Right.SUPERVISE)
    await steering.cancel_task(call, params.task_id, steering.CancelBody(), Response(), None)
    return {}


@_answers
async def _await_result(context: Context, call: Call, params: TaskParams) -> HandlerResult:
    """The result of a task once it has ended, however long that takes."""
    _check_earlier(context)
    call.check_rights(Right.READ)
    before = await session_of(call, params.task_id)
    session = await await_news(call, before, RESULT_SECONDS, _reporting(context), asks=False)
    if not session.status.terminal:
        raise Unavailable("The task has not ended yet; ask again for its result.")
    task = await read_session(call, session)
    whole = final_result(task).model_dump(mode="json", by_alias=True, exclude_none=True)
    return {**whole, "_meta": {RELATED_TASK: {"taskId": task.task_id}}}


@_answers
async def _list_tasks(context: Context, call: Call, params: PaginatedRequestParams) -> HandlerResult:
    _check_earlier(context)
    listing = await tools.list_tasks(call, ListArguments(limit=PAGE, cursor=params.cursor))
    more = {"nextCursor": listing.next_cursor} if listing.next_cursor else {}
    return {"tasks": [_dump(earlier_task_object(task)) for task in listing.items], **more}


def _check_earlier(context: Context) -> None:
    """The extension has neither: a task has its result, and hosts know their tasks."""
    if not _has_earlier_tasks(context):
        raise MCPError(METHOD_NOT_FOUND, "Method not found", context.method)


@_answers
async def _list_resources(context: Context, call: Call, params: PaginatedRequestParams | None) -> ListResourcesResult:
    """The results of the newest tasks; the templates cover all others."""
    call.check_rights(Right.READ)
    query = task_routes.TaskQuery(status=sorted(TERMINAL), top_level=True, limit=LISTED)
    page = await task_routes.list_tasks(call, query)
    found = [
        Resource(name=one.task_id, title=one.title, uri=f"errand://tasks/{one.task_id}/result", mime_type=JSON)
        for one in page.items
    ]
    return ListResourcesResult(resources=found)


async def _list_templates(context: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=TEMPLATES)


@_answers
async def _read_resource(context: Context, call: Call, params: ReadResourceRequestParams) -> ReadResourceResult:
    return ReadResourceResult(contents=[await _read(call, str(params.uri))])


# A result, a trace or a file as a resource.


async def _read(call: Call, uri: str) -> TextResourceContents | BlobResourceContents:
    call.check_rights(Right.READ)
    match uri.removeprefix("errand://").split("/") if uri.startswith("errand://") else []:
        case ["tasks", task_id, "result"]:
            result = await task_routes.show_result(call, task_id, task_routes.ResultQuery())
            return TextResourceContents(uri=uri, mime_type=JSON, text=result.model_dump_json())
        case ["tasks", task_id, "trace"]:
            trace = await task_routes.show_trace(call, task_id, task_routes.TraceQuery())
            return TextResourceContents(uri=uri, mime_type=JSON, text=trace.model_dump_json())
        case ["files", file_id] if is_id(file_id):
            return await _file(call, uri, file_id)
    raise NotFound("There is no such resource.")


async def _file(call: Call, uri: str, file_id: str) -> TextResourceContents | BlobResourceContents:
    known = (await files.find(call.pool, call.tenant, [file_id])).get(file_id)
    if known is not None and known.size > MAX_BYTES:
        raise Invalid(
            f"The file has {known.size} bytes, and a resource at most {MAX_BYTES}. GET /files/{file_id} returns it."
        )
    found = await files.content(call.pool, call.tenant, file_id)
    if found is None:
        raise NotFound("There is no such resource.")
    _, media_type, content = found
    try:
        return TextResourceContents(uri=uri, mime_type=media_type, text=content.decode())
    except UnicodeDecodeError:
        return BlobResourceContents(uri=uri, mime_type=media_type, blob=base64.b64encode(content).decode())


# Our refusals in the form of this protocol: the text of a tool's error, or a JSON-RPC error. Both are made from the
# problems that all other routes return, so that checks and texts exist once.


def _problem(error: Exception) -> tuple[int, str, str]:
    """Status, type and text. An unexpected error shows only an opaque id."""
    request_id = new_id()
    problem = respond(error, request_id)
    body = json.loads(bytes(problem.body))
    lines = [body["detail"]]
    for one in body.get("errors", [])[:MOST_FINDINGS]:
        allowed = f" (allowed: {', '.join(map(str, one['allowed'][:MOST_FINDINGS]))})" if one.get("allowed") else ""
        lines.append(f"{one['pointer']}: {one['message']}{allowed}")
    # the id leads to the entry in the log; the error itself may contain anything and stays there
    if problem.status_code == 500:
        lines.append(f"instance: {request_id}")
    if "retry_after" in body:
        lines.append(f"Try again after {body['retry_after']} s.")
    return problem.status_code, str(body["type"]).removeprefix(URN), "\n".join(lines)
