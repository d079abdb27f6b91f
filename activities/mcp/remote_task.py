"""Tasks of MCP servers and calls that ask for input: the protocol's messages, converted to our handles and results."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp.client import ClientExtension
from mcp.client.extension import ClaimContext, ResultClaim
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequestParams,
    ElicitResult,
    InputRequiredResult,
    Request,
    RequestParams,
    Result,
)
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from activities.mcp.connection import TASKS, McpFailure
from activities.tools.tool import clean_json, clean_text
from domain.json_object import JsonObject
from domain.json_schema import schema_problems
from domain.sessions.session import LONGEST_POLL_MS, MOST_ASKED, MOST_ROUNDS, SHORTEST_POLL_MS, RemoteCall, RemoteForm

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

IDEMPOTENCY_KEY = "errand/idempotencyKey"  # in a request's _meta; another Errand starts one task for one key
LONGEST_MESSAGE = 2_000
LONGEST_STATE = 65_536
DONE_SCHEMA: JsonObject = {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]}


def _storable(text: str) -> str:
    """Refuse a text that could not be stored and sent back as it is."""
    if clean_text(text) != text:
        raise ValueError("has control characters")
    return text


class CreatedTask(Result, extra="allow"):
    result_type: Literal["task"]
    task_id: Annotated[str, AfterValidator(_storable)] = Field(min_length=1, max_length=500)
    poll_interval_ms: Any = None  # a wrong one must not cost the id


class AboutTask(RequestParams):
    task_id: str
    input_responses: JsonObject | None = None


class TaskRequest(Request[AboutTask, str]):
    method: str
    params: AboutTask
    name_param = "taskId"


class TaskState(Result, extra="allow"):
    status: str = ""
    poll_interval_ms: Any = None
    input_requests: JsonObject | None = None
    result: JsonObject | None = None
    error: JsonObject | None = None


class Acknowledged(Result, extra="allow"):
    pass


class DeclaresTasks(ClientExtension):
    """Declares that this client supports tasks. This module decides what to do with one, never the library."""

    identifier = TASKS

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=_refuse_claim)]


async def _refuse_claim(created: CreatedTask, context: ClaimContext) -> CallToolResult:
    raise AssertionError("calls are made without the library's loop")


class Elicitations:
    """Questions that a server asks during a request, as earlier protocol versions do. People take longer than a request
    may: a question without an answer is cancelled, never declined in their name. If they may be asked, the call is made
    again with their answers."""

    def __init__(self) -> None:
        self.asked: JsonObject = {}  # without an answer so far, by key
        self.answers: JsonObject = {}  # as the protocol has them, by key

    async def answer(self, context: Any, params: ElicitRequestParams) -> ElicitResult:
        shown = params.model_dump(mode="json", by_alias=True, exclude_none=True)
        shown.pop("_meta", None)
        # the same question of the repeated call has the same key
        key = "elicitation-" + hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:32]
        if (known := self.answers.get(key)) is not None:
            return ElicitResult.model_validate(known)
        if len(self.asked) < MOST_ASKED:
            self.asked[key] = {"method": "elicitation/create", "params": shown}
        return ElicitResult(action="cancel")


Called = CallToolResult | InputRequiredResult | CreatedTask
_CALLED: TypeAdapter[Called] = TypeAdapter(CreatedTask | InputRequiredResult | CallToolResult)


async def call_tool(
    session: "ClientSession", tool: str, arguments: JsonObject, key: str, remote: RemoteCall, answers: JsonObject
) -> Called:
    """Make a call without the library's own `call_tool`, which would check the result against a schema of the server; a
    pattern in it could block this process for hours. `remote`, `answers`: for a call that asked for input before."""
    meta: Any = {IDEMPOTENCY_KEY: key}
    given: Any = answers or None
    params = CallToolRequestParams(
        name=tool, arguments=arguments, _meta=meta, input_responses=given, request_state=remote.state
    )
    return await session.send_request(CallToolRequest(params=params), _CALLED)


async def get_task(session: "ClientSession", task_id: str) -> TaskState:
    return await session.send_request(TaskRequest(method="tasks/get", params=AboutTask(task_id=task_id)), TaskState)


async def update_task(session: "ClientSession", task_id: str, answers: JsonObject) -> None:
    params = AboutTask(task_id=task_id, input_responses=answers)
    await session.send_request(TaskRequest(method="tasks/update", params=params), Acknowledged)


async def cancel_task(session: "ClientSession", task_id: str) -> None:
    await session.send_request(TaskRequest(method="tasks/cancel", params=AboutTask(task_id=task_id)), Acknowledged)


def poll_ms(given: Any) -> int:
    """What a server wants, within our bounds; the shortest pause if it is no number."""
    wanted = given if isinstance(given, int | float) and given == given else 0
    return round(max(SHORTEST_POLL_MS, min(wanted, LONGEST_POLL_MS)))


def responses(forms: list[RemoteForm], answers: Mapping[str, JsonObject | None]) -> JsonObject:
    """People's answers in the protocol's form."""
    found: JsonObject = {}
    for form in forms:
        given = answers.get(form.key)
        if given is None or (form.answer_schema == DONE_SCHEMA and not given.get("done")):
            found[form.key] = {"action": "cancel"}  # nobody answered, which is no refusal
        elif form.answer_schema == DONE_SCHEMA:
            found[form.key] = {"action": "accept"}
        else:
            found[form.key] = {"action": "accept", "content": given}
    return found


def asking(remote: RemoteCall, requested: Mapping[str, Any]) -> RemoteCall:
    """The handle with the forms that the server asks for now, without those that were already answered."""
    if remote.state is not None and (len(remote.state) > LONGEST_STATE or clean_text(remote.state) != remote.state):
        raise McpFailure("The server asks with a state that cannot be kept.")
    new = {key: one for key, one in requested.items() if key not in remote.answered}
    if len(new) > MOST_ASKED or remote.round >= MOST_ROUNDS:
        raise McpFailure("The server asks more questions than people can be asked.")
    forms = [_form(key, one) for key, one in new.items()]
    return remote.model_copy(update={"forms": forms, "round": remote.round + (1 if forms else 0)})


def _form(key: str, asked: Any) -> RemoteForm:
    """A flat form, or an address that people open themselves. Requests for our model or files are refused."""
    request = asked if isinstance(asked, dict) else asked.model_dump(mode="json", by_alias=True, exclude_none=True)
    params = request.get("params") if request.get("method") == "elicitation/create" else None
    if not isinstance(params, dict) or len(key) > 500 or clean_text(key) != key:
        raise McpFailure("The server asks for something that it does not get here.")
    message = clean_text(str(params.get("message", "")))[:LONGEST_MESSAGE]
    if params.get("mode") == "url":
        address = clean_text(str(params.get("url", "")))[:LONGEST_MESSAGE]
        return RemoteForm(
            key=key, message=f"{message}\nOpen {address} yourself, if you trust it.", answer_schema=DONE_SCHEMA
        )
    schema = clean_json(params.get("requestedSchema"))
    if not isinstance(schema, dict) or schema.get("type") != "object" or len(str(schema)) > 10_000:
        raise McpFailure("The server asks with a form that cannot be used.")
    if schema_problems("requestedSchema", schema):
        raise McpFailure("The server asks with a form that cannot be used.")
    return RemoteForm(key=key, message=message, answer_schema=schema)


def task_result(state: TaskState) -> CallToolResult:
    try:
        return CallToolResult.model_validate(state.result)
    except ValidationError:
        raise McpFailure("The result of the task does not follow the protocol.") from None
