"""The tools: one for each agent that a caller can start, and those that watch, answer, continue and stop its tasks."""

import json
from typing import Any, Literal

from errand import models
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent, Tool, ToolAnnotations, ToolExecution
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.conversations import fire, run
from api.conversations.bodies import FireBody, MessageBody
from api.faces.mcp.view import (
    SETTLED,
    McpTask,
    Report,
    await_news,
    find_requests,
    read_id,
    read_session,
    show_task,
    task_object,
    view_task,
)
from api.http.auth import Call
from api.http.body import check_input_length, validate_body
from api.http.idempotency import IdempotencyKey
from api.http.lookup import own_session, session_of
from api.http.problems import finding, refuse
from api.routes import input_requests, steering
from api.routes import tasks as task_routes
from api.submission import submit
from domain.agents.definition import AgentDefinition, AgentName, Mode
from domain.errors import Conflict, Invalid
from domain.json_object import JsonObject
from domain.sessions.session import Status
from domain.task import Id, Strict, TaskSpec, Text
from store import agents, sessions
from store.keys import Right

WAIT_SECONDS = 60


class TaskArguments(Strict):
    task_id: Id


class WaitArguments(TaskArguments):
    seconds: int = Field(default=30, ge=1, le=WAIT_SECONDS, description="answers earlier if the task ends or asks")


class AnswerArguments(TaskArguments):
    request_id: Id | None = Field(default=None, description="default: the only one that the task waits for")
    answer: Any = Field(
        description='approvals and plans: {"approved": true or false, "notes": "…"}; else as answer_schema says'
    )


class MessageArguments(TaskArguments):
    message: Text | None = Field(default=None, description="required except to fire")
    mode: Literal["steer", "continue", "fire"] | None = Field(
        default=None,
        description="steer: to the running task; continue: a further task of its conversation; fire: deliver the "
        "outcomes of its subagents as a further task. Default: steer while it is running, else continue",
    )


class CancelArguments(TaskArguments):
    reason: str = Field(default="", max_length=2_000)


class ListArguments(Strict):
    status: Status | None = Field(default=None, strict=False)
    agent: AgentName | None = None
    limit: int = Field(default=20, ge=1, le=100)
    cursor: str | None = Field(default=None, max_length=200)


class McpTaskList(BaseModel):
    items: list[McpTask]
    next_cursor: str | None


READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
ACTS = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True)
STOPS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)

Arguments = TaskArguments | WaitArguments | AnswerArguments | MessageArguments | CancelArguments | ListArguments
# name -> its arguments, the rights to call it, its description
TASK_TOOLS: dict[str, tuple[type[Arguments], tuple[Right, ...], ToolAnnotations, str]] = {
    "task_status": (TaskArguments, (Right.READ,), READS, "Show a task: its status, progress, result and questions."),
    "task_wait": (
        WaitArguments,
        (Right.READ,),
        READS,
        f"Wait up to {WAIT_SECONDS} s until a task ends or asks something, then show it. Call it again if needed.",
    ),
    "task_answer": (
        AnswerArguments,
        (Right.ANSWER, Right.APPROVE, Right.SUPERVISE),
        ACTS,
        "Answer a question, or approve a call or a plan, for a person who decided so. Never decide in their place.",
    ),
    "task_message": (
        MessageArguments,
        (Right.SUBMIT, Right.SUPERVISE),
        ACTS,
        "Send a message to a running task, or continue the conversation of one that has ended.",
    ),
    "task_cancel": (CancelArguments, (Right.SUBMIT, Right.SUPERVISE), STOPS, "Cancel a task; it keeps what it has."),
    "task_list": (ListArguments, (Right.READ,), READS, "List tasks, the newest first."),
}

_CONFIG: JsonObject = {
    "max_cost_usd": {"type": "number", "exclusiveMinimum": 0, "description": "the task ends before it costs more"},
    "files": {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": 100,
        "description": "ids of uploaded files or artifacts (errand://files/ID); they appear in the workspace",
    },
}


def task_tools(rights: frozenset[Right]) -> list[Tool]:
    """The tools that a caller with these rights may use."""
    return [
        Tool(
            name=name,
            description=description,
            input_schema=arguments.model_json_schema(),
            output_schema=(McpTaskList if name == "task_list" else McpTask).model_json_schema(mode="serialization"),
            annotations=annotations,
        )
        for name, (arguments, needed, annotations, description) in TASK_TOOLS.items()
        if Right.ADMIN in rights or rights.intersection(needed)
    ]


def is_startable(definition: AgentDefinition) -> bool:
    """Whether an agent is a tool: callers may start it, and no other tool has its name."""
    return definition.mode is not Mode.SUBAGENT and definition.name not in TASK_TOOLS


def agent_tool(definition: AgentDefinition) -> Tool:
    return Tool(
        name=definition.name,
        title=definition.title,
        description=f"{definition.description} Starts a durable task.".strip(),
        input_schema=_input_schema(definition),
        output_schema=McpTask.model_json_schema(mode="serialization"),
        annotations=ACTS,
        execution=ToolExecution(task_support="optional"),  # for hosts of the version that has tasks itself
    )


def _takes_object(definition: AgentDefinition) -> bool:
    return definition.input_schema is not None and definition.input_schema.get("type") == "object"


def _input_schema(definition: AgentDefinition) -> JsonObject:
    schema = definition.input_schema
    if schema is not None and _takes_object(definition):
        # a field of the agent's schema wins over ours of the same name, as in `task_of`
        return {**schema, "properties": {**_CONFIG, **schema.get("properties", {})}}
    text = schema or {"type": "string", "minLength": 1, "description": "the task"}
    properties = {"input": text, **_CONFIG}
    return {"type": "object", "properties": properties, "required": ["input"], "additionalProperties": False}


def task_of(definition: AgentDefinition, arguments: JsonObject) -> JsonObject:
    """The arguments of an agent's tool as the body of POST /tasks. Fields of the agent's schema are the agent's
    input."""
    schema = definition.input_schema or {}
    own = schema.get("properties", {}) if _takes_object(definition) else {"input": {}}
    given = {name: value for name, value in arguments.items() if name in own or name not in _CONFIG}
    ours = {name: value for name, value in arguments.items() if name not in given}
    body: JsonObject = {"agent": definition.name}
    if _takes_object(definition):
        body["input"] = given
    elif unknown := sorted(
        set(given) - set(own)
    ):  # other fields of a task, such as the agent, are not arguments of this tool
        problems = [
            finding(f"/{name[:100]}", "unknown_field", "there is no such argument", [*own, *_CONFIG])
            for name in unknown
        ]
        raise Invalid("An argument is not known.", errors=problems[:20])
    else:
        body |= given
    if "max_cost_usd" in ours:
        body["config"] = {"max_cost_usd": ours["max_cost_usd"]}
    if "files" in ours:
        body["context"] = {"files": ours["files"]}
    return body


# tools/call: starts an agent's task, or operates on an existing one.


async def start_task(call: Call, name: str, arguments: JsonObject, key: str | None) -> McpTask:
    """Start a new task of the agent with this name."""
    found = await agents.get_current(call.pool, call.tenant, name)
    if found is None or not is_startable(found[1]):
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {name[:100]}")
    call.check_rights(Right.SUBMIT)
    body = task_of(found[1], arguments)
    check_input_length(body, call.settings)
    spec = validate_body(TaskSpec, body, json.dumps(body).encode())
    accepted = await submit.submit(call, spec, IdempotencyKey.of(call, f"tools/call {name}", spec, key))
    return await read_id(call, models.TaskHandle.model_validate_json(accepted.body).task_id)


async def run_task_tool(
    call: Call, name: str, arguments: JsonObject, key: str | None, report: Report | None
) -> CallToolResult:
    model, rights, _, _ = TASK_TOOLS[name]
    call.check_rights(*rights)
    given = validate_body(model, arguments, json.dumps(arguments).encode())
    match given:
        case WaitArguments():
            session = await await_news(call, await session_of(call, given.task_id), given.seconds, report)
            return show_task(await read_session(call, session))
        case AnswerArguments():
            return await _answer(call, given)
        case MessageArguments():
            return await _message(call, given, key)
        case CancelArguments():
            body = steering.CancelBody(reason=given.reason)
            await steering.cancel_task(call, given.task_id, body, Response(), key)
            return show_task(await read_id(call, given.task_id))
        case ListArguments():
            return await _list(call, given)
        case TaskArguments():
            return show_task(await read_id(call, given.task_id))


async def _answer(call: Call, given: AnswerArguments) -> CallToolResult:
    session = await own_session(call, given.task_id)
    waiting = await find_requests(call, session)
    request_id = given.request_id
    if request_id is None:
        if len(waiting) != 1:
            listed = [one.id for one in waiting]
            raise refuse("/request_id", "missing", "name what you answer", listed)
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
    return show_task(await read_id(call, session.id), note)


async def _message(call: Call, given: MessageArguments, key: str | None) -> CallToolResult:
    session = await own_session(call, given.task_id)
    mode = given.mode or ("continue" if session.status.terminal else "steer")
    if given.message is None and mode != "fire":
        raise refuse("/message", "missing", "this field is required")
    if mode == "steer":
        assert given.message is not None
        body = steering.SteerBody(message=given.message)
        steered = await steering.steer_task(call, session.id, body, key)
        return show_task(await read_id(call, steered.session_id), "The message was delivered to the running task.")
    call.check_rights(Right.SUBMIT)
    repeat = IdempotencyKey.of(call, f"tools/call task_message {mode}", given, key)
    check_input_length({"input": given.message}, call.settings)
    if mode == "fire":
        turn = await fire.fire(call, session.conversation_id, FireBody(input=given.message), repeat)
    else:
        turn = await run.further(call, session.conversation_id, MessageBody(input=given.message), repeat)
    task = await read_id(call, turn.handle.session_id)
    return show_task(task, f"The conversation continues as the task {task.task_id}.")


async def _list(call: Call, given: ListArguments) -> CallToolResult:
    listing = await list_tasks(call, given)
    lines = [f"{one.task_id} {one.status} {one.agent}: {one.title}" for one in listing.items] or ["There are no tasks."]
    return CallToolResult(
        content=[TextContent(type="text", text="\n".join(lines))], structured_content=listing.model_dump(mode="json")
    )


async def list_tasks(call: Call, given: ListArguments) -> McpTaskList:
    call.check_rights(Right.READ)
    query = task_routes.TaskQuery(
        status=[given.status] if given.status else [], agent=given.agent, limit=given.limit, cursor=given.cursor
    )
    page = await task_routes.list_tasks(call, query)
    rows = await sessions.by_ids(call.pool, call.tenant, [one.task_id for one in page.items])
    poll = call.settings.poll_interval_ms
    # outputs may be large, and a list has up to a hundred tasks
    items = [view_task(rows[one.task_id], [], [], poll).model_copy(update={"output": None}) for one in page.items]
    return McpTaskList(items=items, next_cursor=page.next_cursor)


def show_created(task: McpTask) -> JsonObject:
    """The handle of a task, for a client of the tasks extension."""
    seed = task_object(task, []).model_copy(update={"status": "working", "result": None})
    return {"resultType": "task", **seed.dump()}
