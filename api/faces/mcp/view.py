"""A task in this protocol: read with what it waits for, shown as the result of a tool or as the object of the tasks
extension; questions as forms, and forms as answers; progress while a caller waits."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from errand import models
from errand.models import TaskSummary
from mcp_types import (
    CallToolResult,
    ContentBlock,
    ElicitRequest,
    ElicitRequestFormParams,
    ResourceLink,
    Task,
    TaskStatus,
    TextContent,
)
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_camel

from api.http import body
from api.http.auth import Call
from api.http.lookup import check_acting, session_of
from api.http.problems import refuse
from api.streams.readers import await_state
from api.views.conversation import request_record
from api.views.results import task_error
from domain.agents.definition import VariableKind
from domain.agents.variables import graph_variables
from domain.amounts import format_count
from domain.errors import NotAllowed, Refusal
from domain.events import Recorded
from domain.json_object import JsonObject
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind
from domain.sessions.session import Status
from store import agents, events, files, input_requests, threads
from store.files import File
from store.keys import Right
from store.sessions import SessionRow

ACTIONS = ("accept", "decline", "cancel")
SETTLED = ("request-settled", "already-terminal")
MOST_SHOWN = 4_000  # characters of a call's arguments, a diff or a schema
PAGE = 200
RECENT = 20  # events before now, for a first line at once
_TYPES = ("string", "number", "integer", "boolean")
# the keywords that a form may have for a field
_KEYS = ("type", "title", "description", "default", "enum", "minLength", "maxLength", "minimum", "maximum")
_APPROVAL: JsonObject = {
    "approved": {"type": "boolean", "title": "Approve"},
    "notes": {"type": "string", "title": "Notes", "description": "for the agent", "maxLength": 5_000},
}
Report = Callable[[int, str], Awaitable[None]]  # a growing number, and a line


class McpTask(TaskSummary):
    """The result of every tool."""

    progress: str
    output: Any = Field(description="text, or JSON if the agent has an output schema")
    error: str | None
    artifacts: list[ResourceLink]
    waiting_for: list[models.InputRequest] = Field(description="questions and approvals; answer them with task_answer")
    cost_usd: float | None
    poll_interval_ms: int


class ExtensionTask(BaseModel, alias_generator=to_camel, populate_by_name=True):
    """A task of the tasks extension, which the library does not know."""

    task_id: str
    status: TaskStatus
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int
    result: CallToolResult | None = None
    input_requests: dict[str, ElicitRequest] | None = None

    def dump(self) -> JsonObject:
        """As it is sent: without what this task does not have, but with a ttl that is null."""
        return {"ttlMs": None, **self.model_dump(mode="json", by_alias=True, exclude_none=True)}


class FormResponse(BaseModel, extra="ignore"):
    """A person's reaction to a form."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


# Reading a task.


async def read_id(call: Call, task_id: str) -> McpTask:
    return await read_session(call, await session_of(call, task_id))


async def read_session(call: Call, session: SessionRow, requests: list[InputRequest] | None = None) -> McpTask:
    waiting = await find_requests(call, session) if requests is None else requests
    artifacts = await files.of_session(call.pool, call.tenant, session.id)
    task = view_task(session, waiting, artifacts, call.settings.poll_interval_ms)
    # acting needs no right to read, so that every tool's result passes here
    if call.caller.may(Right.READ):
        return task
    # only its status, as over HTTP
    texts = {"title": "", "progress": "", "output": None, "error": None}
    return task.model_copy(update={**texts, "artifacts": [], "waiting_for": [], "cost_usd": None})


async def find_requests(call: Call, session: SessionRow) -> list[InputRequest]:
    """The open requests of the task and its subagents, except waits for events, which no person answers."""
    if session.status.terminal:
        return []
    below = await threads.find_descendants(call.pool, call.tenant, session.id)
    found = await input_requests.of_sessions(call.pool, call.tenant, [session.id, *below])
    return [one for one in found if one.kind is not RequestKind.EXTERNAL_EVENT]


async def find_askable(call: Call, session: SessionRow, requests: list[InputRequest]) -> list[InputRequest]:
    """The requests that can be shown as forms: the caller may answer them, and they do not ask for a secret."""
    try:
        await check_acting(call, session)
    except NotAllowed:
        return []
    found = []
    for one in requests:
        right = Right.APPROVE if one.kind in APPROVALS else Right.ANSWER
        if call.caller.may(right, Right.SUPERVISE) and not await _asks_for_secret(call, session, one):
            found.append(one)
    return found


async def _asks_for_secret(call: Call, session: SessionRow, request: InputRequest) -> bool:
    if request.kind is not RequestKind.MISSING_VARIABLES:
        return False
    asking = session if request.session_id == session.id else await session_of(call, request.session_id)
    definition = await agents.load(call.pool, asking.agent_ref)
    known = graph_variables(await agents.find_reachable(call.pool, call.tenant, definition))
    names = request.details.get("variables", {})
    # a name that no agent declares may be a secret, and a form shows what is typed
    return any(name not in known or known[name].kind is VariableKind.SECRET for name in names)


def view_task(session: SessionRow, requests: Sequence[InputRequest], files: Sequence[File], poll_ms: int) -> McpTask:
    error, output = task_error(session), session.output
    return McpTask(
        task_id=session.id,
        progress=session.progress,
        output=json.loads(output) if session.typed and output else output,
        error=f"{error.type}: {error.message}" if error else None,
        artifacts=[
            ResourceLink(
                type="resource_link",
                name=file.name,
                uri=file.url or f"errand://files/{file.id}",
                mime_type=file.media_type,
                size=file.size,
            )
            for file in files
        ],
        waiting_for=[request_record(one) for one in requests],
        cost_usd=session.usage.cost_usd,
        poll_interval_ms=poll_ms,
        **{name: getattr(session, name) for name in TaskSummary.model_fields.keys() - {"task_id"}},
    )


# Showing it.


def show_task(task: McpTask, note: str = "") -> CallToolResult:
    """The tool result about a task. A failed task is not a failure of the tool."""
    text = "\n".join(line for line in (note, *_lines(task)) if line)
    return CallToolResult(content=_content(task, text), structured_content=task.model_dump(mode="json", by_alias=True))


def final_result(task: McpTask) -> CallToolResult:
    """The final result of a call of an agent."""
    failed = task.status != "completed"
    text = "\n".join(_lines(task)) if failed else _text(task.output)
    return CallToolResult(
        content=_content(task, text), structured_content=task.model_dump(mode="json", by_alias=True), is_error=failed
    )


def _content(task: McpTask, text: str) -> list[ContentBlock]:
    return [TextContent(type="text", text=text), *task.artifacts]


def _lines(task: McpTask) -> list[str]:
    ended = f" ({task.reason}{', partial result' if task.partial else ''})" if task.reason else ""
    lines = [f"Task {task.task_id} of {task.agent}: {task.status}{ended}"]
    if task.error:
        lines.append(task.error)
    if task.ended:
        return [*lines, _text(task.output)] if task.output is not None else lines
    for one in task.waiting_for:
        lines.append(f"It waits for the answer {one.id} ({one.kind}): {one.question}")
    if task.waiting_for:
        return [*lines, "Ask the person, then call task_answer."]
    return [*lines, task.progress, f'Call task_wait with task_id "{task.task_id}" for its result.']


def _text(output: Any) -> str:
    return output if isinstance(output, str) else "" if output is None else json.dumps(output, ensure_ascii=False)


def task_object(task: McpTask, askable: Sequence[InputRequest]) -> ExtensionTask:
    """A task of the extension. `askable`: requests that this client can show as forms and its caller may answer."""
    ttl = (task.keep_until - task.created_at).total_seconds() if task.keep_until else None
    found = ExtensionTask(
        task_id=task.task_id,
        status="working",
        status_message=_status_message(task),
        created_at=task.created_at.isoformat(),
        last_updated_at=task.updated_at.isoformat(),
        ttl_ms=None if ttl is None else round(ttl * 1_000),
        poll_interval_ms=task.poll_interval_ms,
    )
    if task.status == "cancelled":
        found.status = "cancelled"
    elif task.ended:
        found.status = "completed"
        found.result = final_result(task)
    elif askable:
        found.status = "input_required"
        found.input_requests = {one.id: form_of(one) for one in askable}
    return found


def earlier_task_object(task: McpTask) -> Task:
    """A task as the version 2025-11-25 has it. Its result is another request, and it has no forms: what people are
    asked waits in the inbox."""
    now = task_object(task, [])
    return Task(
        task_id=now.task_id,
        status="failed" if task.status == "failed" else now.status,
        status_message=now.status_message,
        created_at=now.created_at,
        last_updated_at=now.last_updated_at,
        ttl=now.ttl_ms,
        poll_interval=now.poll_interval_ms,
    )


def _status_message(task: McpTask) -> str:
    if task.ended:
        return _lines(task)[0]
    waiting = "; ".join(one.question for one in task.waiting_for)
    return (f"waits for people: {waiting}" if waiting else task.progress or task.status)[:500]


# Input requests as forms. A form is a flat object of texts, numbers, booleans and choices.


def form_of(request: InputRequest) -> ElicitRequest:
    """The request as an `elicitation/create`."""
    properties, required = _fields(request)
    schema = {"type": "object", "properties": properties, "required": required}
    return ElicitRequest(params=ElicitRequestFormParams(message=message_of(request), requested_schema=schema))


def message_of(request: InputRequest) -> str:
    details, parts = request.details, [request.question]
    if request.kind is RequestKind.PLAN_APPROVAL:
        parts.append("\n".join(f"{place}. {title}" for place, title in enumerate(details.get("plan", []), 1)))
    elif details.get("arguments"):
        parts.append(_bound(json.dumps(details["arguments"], indent=2, ensure_ascii=False)))
    if isinstance(details.get("diff"), str):
        parts.append(_bound(details["diff"]))
    for file in details.get("files", []):  # the files that the call would run
        text = file.get("text")
        parts.append(f"{file['path']}:\n{_bound(text) if text is not None else '(too long, or not text)'}")
    if more := details.get("more_files"):
        parts.append(f"It names {format_count(more['count'], 'more file')}, not shown here; look there first.")
    if rule := details.get("rule"):
        parts.append(f'Asked because of the rule: {rule["action"]} {rule["permission"]} "{rule["pattern"]}"')
    return "\n\n".join(part for part in parts if part)


def _bound(text: str) -> str:
    """A text that is cut says so, because a person must not approve what is not shown."""
    left = len(text) - MOST_SHOWN
    return (
        text if left <= 0 else f"{text[:MOST_SHOWN]}\n[{left:,} more characters are not shown here; look at them first]"
    )


def answer_of(request: InputRequest, response: FormResponse) -> tuple[Any] | None:
    """The answer in a response, in a tuple because it may be null; None if the request stays open."""
    if response.action == "cancel":
        return None
    if response.action == "decline":
        if request.kind in APPROVALS:
            return ({"approved": False},)
        # a question stays open: somebody else may still answer it
        return ({"error": "declined"},) if request.kind is RequestKind.EXTERNAL_RESULT else None
    # clients send null for fields that a person left empty
    content = {name: value for name, value in (response.content or {}).items() if value is not None}
    if request.kind in APPROVALS:
        if not content.get("notes"):
            content.pop("notes", None)
        return (content,)
    properties, required = _fields(request)
    for name in required:
        if name not in content:
            raise refuse(f"/inputResponses/{request.id}/content/{name}", "missing", "this field is required")
    if "answer_json" in properties:
        try:
            return (body.parse_json(str(content["answer_json"]).encode()),)
        except (Refusal, UnicodeError):
            raise refuse(f"/inputResponses/{request.id}/content/answer_json", "json", "must be JSON") from None
    return (content["answer"],) if "answer" in properties else (content,)


def _fields(request: InputRequest) -> tuple[JsonObject, list[str]]:
    schema = request.answer_schema
    if request.kind in APPROVALS:
        return _APPROVAL, ["approved"]
    if request.kind is RequestKind.EXTERNAL_RESULT:
        return {"result": {"type": "string", "title": "Result"}}, ["result"]
    if schema is None:
        options = request.details.get("options")
        answer = {"type": "string", "enum": options} if options else {"type": "string", "minLength": 1}
        return {"answer": {"title": "Answer", **answer}}, ["answer"]
    if (field := _flat(schema)) is not None:
        return {"answer": {"title": "Answer", **field}}, ["answer"]
    if schema.get("type") == "object" and schema.get("properties"):
        fields = {name: _flat(one) for name, one in schema["properties"].items()}
        # a field of one of these names could be mistaken for our own
        if all(field is not None for field in fields.values()) and not {"answer", "answer_json"} & fields.keys():
            return fields, [name for name in schema.get("required", []) if name in fields]
    fits = f"JSON that fits {json.dumps(schema, ensure_ascii=False)}"[:MOST_SHOWN]
    return {"answer_json": {"type": "string", "title": "Answer as JSON", "description": fits}}, ["answer_json"]


def _flat(schema: Any) -> JsonObject | None:
    """A schema as one field; None if it cannot be one. The whole schema is checked when the answer arrives."""
    if not isinstance(schema, dict):
        return None
    enum = schema.get("enum")
    if enum is not None and not (enum and all(isinstance(one, str) for one in enum)):
        return None
    if schema.get("type", "string" if enum else None) not in _TYPES:
        return None
    return {"type": "string", **{name: schema[name] for name in _KEYS if name in schema}}


# Waiting, with the newest line of the log as progress.


async def await_news(
    call: Call, session: SessionRow, seconds: float, report: Report | None, *, asks: bool = True
) -> SessionRow:
    """The session once it has ended or, with `asks`, waits for people; or its present state after this many seconds or
    when this process stops."""
    head = await events.head_of_session(call.pool, call.tenant, session.id) if report else None
    seen = max(0, head[0] - RECENT) if head else 0

    async def look(now: SessionRow) -> bool:
        nonlocal seen
        if report is not None:
            seen = await _report(call, now, seen, report)
        return now.status.terminal or (asks and now.status is Status.INPUT_REQUIRED)

    return await await_state(call, session, seconds, look)


async def _report(call: Call, session: SessionRow, seen: int, report: Report) -> int:
    page = await events.without_deltas(call.pool, call.tenant, session.id, PAGE, seen)
    lines = [(event.seq, line) for event in page if (line := line_of(event))]
    # only the newest line: a client that connects late must not get the whole history as progress
    if lines:
        await report(*lines[-1])
    # events without a line count as seen too, or each look would read them again
    return page[-1].seq if page else seen


def line_of(event: Recorded) -> str | None:
    """An event as a line of progress; None if it does not interest a person who waits."""
    data = event.data
    match event.type:
        case "progress":
            return str(data["message"])
        case "step_started":
            return str(data["description"])
        case "tool_called":
            return f"{data['tool']} {data['args']}"
        case "input_required":
            return f"waits for people: {data['question']}"
        case "subagent_started":
            return f"subagent {data['agent']}: {data['description']}"
    return None
