"""POST /v1/responses: the request as a turn of a conversation, or as answers to the calls for which a session waits."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from errand import models
from pydantic import BaseModel, Field, ValidationError

from api.conversations import control, deferred, run
from api.conversations.bodies import MessageBody, RunBody
from api.conversations.control import Stop
from api.faces.responses.errors import BadParameter
from api.faces.responses.input_files import FilePart, InputFiles, keep_files
from api.faces.responses.project import ResponseId, without_prefix
from api.faces.responses.request import UNSTORED_MS, CreateResponse
from api.faces.responses.view import FACE, FoundResponse, find, fold_log
from api.http import lookup
from api.http.auth import Call
from api.http.body import parse_json, validate_body
from api.http.idempotency import IdempotencyKey
from api.submission import rules
from domain.conversations.display_messages import display_messages
from domain.errors import Conflict, NotFound, Refusal
from domain.faces import FaceRequest, NewFaceRequest
from domain.json_object import JsonObject
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind, RequestStatus
from domain.sessions.session import Reason
from store import face_requests, input_requests, messages, workspaces
from store.sessions import SessionRow
from store.workspaces import Manifest

ROUTE = "POST /v1/responses"
# each item becomes a message or a lookup in the database
MOST_ITEMS = 1_000
# parts of earlier output that are ignored, because the task's own record has them
ECHOED = frozenset({"reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request"})
M = TypeVar("M", RunBody, MessageBody)


class InputItem(BaseModel, extra="ignore", strict=True):
    """Clients send items back as they received them, so extra fields are allowed."""


class TextPart(InputItem):
    type: Literal["input_text", "output_text", "text", "summary_text"]
    text: str


class InputMessage(InputItem):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Annotated[TextPart | FilePart, Field(discriminator="type")]]

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def files(self) -> list[str]:
        parts = [] if isinstance(self.content, str) else self.content
        return [part.file_id for part in parts if isinstance(part, FilePart) and part.file_id]


class FunctionCallItem(InputItem):
    call_id: str
    name: str
    arguments: str


class CallOutput(InputItem):
    call_id: str
    output: str | list[TextPart]


class ApprovalAnswer(InputItem):
    approval_request_id: str
    approve: bool
    reason: str | None = Field(default=None, max_length=5_000)


_KINDS: dict[str, type[InputItem]] = {
    "message": InputMessage,
    "function_call": FunctionCallItem,
    "function_call_output": CallOutput,
    "mcp_approval_response": ApprovalAnswer,
}


@dataclass
class ParsedInput:
    """The content of the items."""

    instructions: list[str] = field(default_factory=list)  # of system and developer messages
    past: list[tuple[str, str]] = field(default_factory=list)  # role and text of earlier messages
    new: list[str] = field(default_factory=list)  # the user's messages after that
    answers: dict[str, Any] = field(default_factory=dict)  # by input request
    where: dict[str, str] = field(default_factory=dict)  # the parameter that each answer came from
    files: list[str] = field(default_factory=list)  # ids, of all messages of the user
    texts: set[str] = field(default_factory=set)  # answers that `past` has as text too, with their calls

    def end_with_message(self) -> None:
        """Let the last results be what the user says, if the user said nothing after them."""
        if not self.new:
            while self.past and self.past[-1][0] == "user":
                self.new.insert(0, self.past.pop()[1])


async def create(call: Call, body: CreateResponse, files: InputFiles, key: str | None, *, repeats: bool) -> ResponseId:
    """The id of the response. `repeats`: the client reports that it has sent this request before."""
    idempotency = IdempotencyKey.of(call, ROUTE, body, key)
    if (known := await idempotency.find_answer(call.pool, call.tenant)) is not None:
        return await _find_replayed(call, idempotency, models.SessionHandle.model_validate_json(known))
    # The client's library repeats a request without a key after a lost response: the digest recognises it.
    if repeats and key is None:
        before = await face_requests.find_repeated(call.pool, call.tenant, FACE, idempotency.digest)
        if before is not None:
            return ResponseId.parse(before)
    if isinstance(body.input, list):
        await keep_files(call, body.input, files)
    previous = await _previous(call, body)
    conversation_id = body.conversation_id()
    if conversation_id is not None and (conversation_id := without_prefix("conv", conversation_id)) is None:
        raise BadParameter("conversation", "There is no such conversation.", "conversation_not_found")
    given = parse(body.input, continues=bool(previous or conversation_id))
    waiting = await _waiting(call, given, previous)
    if waiting is not None:
        if conversation_id is not None and waiting.session.conversation_id != conversation_id:
            raise unknown_call("input")
        if _is_changed(body, given, waiting):
            return await _branch(call, body, given, waiting, idempotency)
        return await _answer(call, body, given, waiting, idempotency)
    given.end_with_message()
    return await _turn(call, body, given, previous, conversation_id, idempotency)


async def _find_replayed(call: Call, key: IdempotencyKey, handle: models.SessionHandle) -> ResponseId:
    """The part of the session that this request began."""
    rows = await face_requests.of_session(call.pool, call.tenant, FACE, handle.session_id)
    # a session may have several parts of equal requests; the latest is the one that was just answered
    return ResponseId(
        handle.session_id, max((part for part, row in rows.items() if row.digest == key.digest), default=1)
    )


async def _previous(call: Call, body: CreateResponse) -> tuple[ResponseId, FoundResponse] | None:
    if body.previous_response_id is None:
        return None
    try:
        response_id = ResponseId.parse(body.previous_response_id)
        found = await find(call, response_id)
    except NotFound:
        message = "There is no such response to continue from."
        raise BadParameter("previous_response_id", message, "previous_response_not_found") from None
    await lookup.check_acting(call, found.session)
    return response_id, found


async def _waiting(
    call: Call, given: ParsedInput, previous: tuple[ResponseId, FoundResponse] | None
) -> FoundResponse | None:
    """The session whose calls the input answers; None if it answers nothing that still waits."""
    asked = await input_requests.by_ids(call.pool, call.tenant, list(given.answers)) if given.answers else {}
    # ids of other tenants are not found either, and get the same refusal as unknown ones
    for request_id, where in given.where.items():
        request = asked.get(request_id)
        if request is None and request_id in given.texts:
            continue
        if request is None or (previous and request.session_id != previous[0].session_id):
            raise unknown_call(where)
    live = {one.session_id for one in asked.values() if one.status is RequestStatus.OPEN}
    if len(live) > 1:
        raise BadParameter("input", "The results belong to more than one task.")
    # Clients send the whole history back with every request, so that results of earlier calls come again.
    given.answers = {name: given.answers[name] for name, one in asked.items() if one.status is RequestStatus.OPEN}
    if live:
        return await find(call, ResponseId(live.pop()), unstored=True)
    if asked and (previous or not given.new):
        raise BadParameter("input", "These calls have been answered before.", "already_answered")
    return None


async def _answer(
    call: Call, body: CreateResponse, given: ParsedInput, found: FoundResponse, key: IdempotencyKey
) -> ResponseId:
    """Let the answers open the next part of the session that waits for them."""
    session = found.session
    await lookup.check_acting(call, session)
    fold = await fold_log(call, found)
    response_id = ResponseId(session.id, len(fold.parts) + 1)
    # the number of the next part is known only once the present one is closed
    if not fold.part.closed or session.status.terminal:
        raise BadParameter("input", "The task does not wait for these answers yet.", "response_in_progress")
    by_caller = found.facts.approvals_by_caller
    for request in await input_requests.of_sessions(call.pool, call.tenant, [session.id]):
        if request.id not in given.answers and _is_callers(request, by_caller):
            call_id = f"{'mcpr' if request.kind in APPROVALS else 'call'}_{request.id}"
            raise BadParameter("input", f"No output was given for the call {call_id}.", "missing_call_output")
    face = FaceRequest(
        face=FACE,
        public_id=str(response_id),
        session_id=session.id,
        part=response_id.part,
        request=body.dump(),
        digest=key.digest,
    )
    content: JsonObject = {"answers": given.answers, "input": "\n\n".join(given.new) or None}
    message = validate_as(MessageBody, {**content, "context": {"files": given.files}})
    await deferred.answer(call, session.conversation_id, message, key, face)
    return response_id


def _is_callers(request: InputRequest, approvals_by_caller: bool) -> bool:
    return request.kind is RequestKind.EXTERNAL_RESULT or (approvals_by_caller and request.kind in APPROVALS)


def _is_changed(body: CreateResponse, given: ParsedInput, found: FoundResponse) -> bool:
    """Whether the request changes what was fixed when the session began. A client may repeat it or leave it out."""
    session, first = found.session, found.request(1)
    tools = first.external_tools() if first.tools is not None else [one.model_dump() for one in session.external_tools]
    schema = session.task_terms.output_schema if session.task_terms else None
    instructions = parse(first.input, continues=True).instructions
    return (
        body.model != session.agent
        or (body.instructions is not None and body.instructions != first.instructions)
        or (bool(given.instructions) and given.instructions != instructions)
        or (body.tools is not None and _by_name(body.external_tools()) != _by_name(tools))
        or (body.output_schema is not None and body.output_schema != schema)
        or any(first.model_settings.get(name) != value for name, value in body.model_settings.items())
    )


def _by_name(tools: list[JsonObject]) -> dict[str, JsonObject]:
    return {tool["name"]: tool for tool in tools}


async def _branch(
    call: Call, body: CreateResponse, given: ParsedInput, found: FoundResponse, key: IdempotencyKey
) -> ResponseId:
    """Open a fork with the history of a waiting task, for another agent, other instructions or other tools: so do
    clients that hand a conversation over. The task ends, because its caller does not continue it."""
    session = found.session
    await lookup.check_acting(call, session)
    if body.conversation is not None:
        message = "The task that waits in this conversation keeps its model, instructions, tools and settings."
        raise BadParameter("conversation", message, "unsupported_value")
    if body.previous_response_id is not None:
        asked = await input_requests.by_ids(call.pool, call.tenant, list(given.answers))
        results = [
            describe_result(asked[one].details["tool"], str(answer["result"]))
            for one, answer in given.answers.items()
            if "result" in answer
        ]
        given.past, given.new = await _past(call, session), results + given.new
    given.end_with_message()
    _, manifest = await workspaces.get(call.pool, call.tenant, session.workspace_id)
    response_id = await _turn(call, body, given, None, None, key, manifest)
    await control.stop_session(call, session, Stop(Reason.CALLER_CANCEL, note=f"continued as {response_id}"))
    return response_id


async def _past(call: Call, session: SessionRow) -> list[tuple[str, str]]:
    """The history of a session as texts, up to the calls that wait."""
    past: list[tuple[str, str]] = []
    for one in display_messages(await messages.path(call.pool, call.tenant, session.head)):
        match one.type:
            case "tool_call":
                past.append(("assistant", describe_call(one.tool or "", one.input or "{}")))
            case "tool_result":
                past.append(("user", describe_result(one.tool or "", one.text or "")))
            case _:
                past.append(("assistant" if one.type == "assistant" else "user", one.text or ""))
    return past


async def _turn(
    call: Call,
    body: CreateResponse,
    given: ParsedInput,
    previous: tuple[ResponseId, FoundResponse] | None,
    conversation_id: str | None,
    key: IdempotencyKey,
    manifest: Manifest | None = None,
) -> ResponseId:
    text = "\n\n".join(given.new)
    if not text.strip():
        raise BadParameter("input", "The input must end with a message of the user.")
    face = NewFaceRequest(face=FACE, prefix="resp_", request=body.dump(), digest=key.digest)
    run_body = validate_as(RunBody, await _run_body(call, body, given, text))
    if previous is not None:
        turn = await _after(call, run_body, previous, key, face)
    elif conversation_id is not None:
        further = run_body.model_copy(update={"if_busy": "queue"})
        turn = await run.further(call, conversation_id, further, key, face)
    else:
        turn = await run.run(call, run_body, key, face, manifest)
    return await _find_replayed(call, key, turn.handle) if turn.replayed else ResponseId(turn.handle.session_id)


async def _after(
    call: Call, body: RunBody, previous: tuple[ResponseId, FoundResponse], key: IdempotencyKey, face: NewFaceRequest
) -> run.NewTurn:
    """A further turn of the conversation; or a fork, if the conversation has already continued from there."""
    response_id, found = previous
    session = found.session
    fold = await fold_log(call, found)
    if not session.status.terminal:
        waits = fold.part.closed
        message = "It waits for the results of its calls." if waits else "The previous response has not ended."
        code = "missing_call_output" if waits else "response_in_progress"
        raise BadParameter("input" if waits else "previous_response_id", message, code)
    if response_id.part < len(fold.parts):
        message = (
            f"The task continued after this response; use the newer one: {ResponseId(session.id, len(fold.parts))}."
        )
        raise BadParameter("previous_response_id", message, "response_superseded")
    if session.thread_id != session.conversation_id:
        raise BadParameter("previous_response_id", "The response of a subagent cannot be continued.")
    latest = await run.latest_of(call, session.conversation_id)
    # a turn that is not stored opens another conversation, which is removed without this one
    if latest.id == session.id and body.config.retention is None:
        try:
            return await run.further(call, session.conversation_id, body, key, face)
        # somebody continued or terminated the conversation meanwhile, on which a fork does not depend
        except Conflict as error:
            if error.type not in ("conversation-busy", "conversation-terminated"):
                raise
    return await run.fork(call, body, await run.fork_source(call, session.id), key, face)


async def _run_body(call: Call, body: CreateResponse, given: ParsedInput, text: str) -> JsonObject:
    definition = (await rules.find_agent(call, body.model)).definition
    instructions = [one for one in (body.instructions, *given.instructions) if one]
    config: JsonObject = {
        "instructions": "\n\n".join(instructions) or None,
        "output_schema": body.output_schema,
        "max_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "external_tools": body.external_tools(),
        "model_settings": body.model_settings or None,
        "retention": UNSTORED_MS if body.store is False else None,
        # outcomes of subagents in the background would go to the mailbox, which this protocol does not have
        "await_children": True,
    }
    past = [{"role": role, "content": content} for role, content in given.past if content.strip()]
    return {
        "agent": body.model,
        "input": _as_object(text) if definition.input_schema is not None else text,
        "transport": "stream",
        "if_busy": "reject",
        "context": {"history": past, "files": given.files},
        "config": config,
    }


def _as_object(text: str) -> str | JsonObject:
    """An agent with an input schema needs an object, which these clients send as text."""
    try:
        value = parse_json(text.encode())
    except Refusal as error:
        if error.type == "malformed-json":
            return text
        raise
    return value if isinstance(value, dict) else text


def validate_as(model: type[M], value: JsonObject) -> M:
    return validate_body(model, value, json.dumps(value).encode())


# The items of an input.


def text_of(content: str | Sequence[TextPart | FilePart]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def parse(given: str | list[JsonObject], *, continues: bool) -> ParsedInput:
    """`continues`: the history is known, so every message is new; otherwise only those after the last reply are."""
    if isinstance(given, str):
        return ParsedInput(new=[given])
    if len(given) > MOST_ITEMS:
        raise BadParameter("input", f"The input may have {MOST_ITEMS} items.", "array_above_max_length")
    found, names = ParsedInput(), dict[str, str]()
    for place, item in enumerate(given):
        match parsed := _parse_item(item, f"input[{place}]"):
            case InputMessage(role="system" | "developer"):
                found.instructions.append(parsed.text)
            case InputMessage(role="user"):
                found.new.append(parsed.text)
                found.files += [one for one in parsed.files if one not in found.files]
            case InputMessage():
                _reply(found, parsed.text, continues)
            case None:
                _reply(found, "", continues)
            case FunctionCallItem():
                names[parsed.call_id] = parsed.name
                _reply(found, describe_call(parsed.name, parsed.arguments), continues)
            case CallOutput():
                _result(found, parsed, names, f"input[{place}].call_id", continues)
            case ApprovalAnswer():
                request_id = _request("mcpr", parsed.approval_request_id, f"input[{place}].approval_request_id")
                note = {"notes": parsed.reason} if parsed.reason else {}
                found.answers[request_id] = {"approved": parsed.approve, **note}
                found.where[request_id] = f"input[{place}].approval_request_id"
    return found


def _parse_item(item: JsonObject, where: str) -> InputItem | None:
    given = item.get("type", "message" if "role" in item else None)
    kind = given if isinstance(given, str) else ""
    if kind in ECHOED:
        return None
    if (model := _KINDS.get(kind)) is None:
        raise BadParameter(f"{where}.type", "Items of this type are not supported here.", "unsupported_value")
    try:
        return model.model_validate(item)
    except ValidationError as error:
        # without the input: refusals never repeat what the caller sent
        entry = error.errors(include_url=False, include_input=False)[0]
        place = next((str(part) for part in entry["loc"] if isinstance(part, str) and part in item), "")
        missing = str(entry["loc"][0]) if entry["type"] == "missing" else ""
        named = ".".join(part for part in (where, place or missing) if part)
        raise BadParameter(named, f"{named} is not valid here: {entry['msg']}.") from None


def _reply(found: ParsedInput, text: str, continues: bool) -> None:
    """Move the agent's earlier reply, and the user's messages before it, to the past."""
    if continues:
        return
    found.past += [("user", one) for one in found.new]
    found.new = []
    if text.strip():
        found.past.append(("assistant", text))


def _result(found: ParsedInput, given: CallOutput, names: dict[str, str], where: str, continues: bool) -> None:
    """A result that belongs to a call in the input may also be of another service's call: it is read as text then."""
    request_id, text = without_prefix("call", given.call_id), text_of(given.output)
    name = names.get(given.call_id)
    if request_id is None and name is None:
        raise unknown_call(where)
    if name is not None and not continues:
        found.past.append(("user", describe_result(name, text)))
    elif name is not None and request_id is None:
        found.new.append(describe_result(name, text))
    if request_id is not None:
        found.answers[request_id] = {"result": text}
        found.where[request_id] = where
        found.texts |= {request_id} if name is not None and not continues else set()


def describe_call(name: str, arguments: str) -> str:
    """A call of the past, as the model reads it."""
    return f"(I called {name} with {arguments}.)"


def describe_result(name: str, text: str) -> str:
    return f"(Result of {name}: {text})"


def _request(prefix: str, given: str, where: str) -> str:
    request_id = without_prefix(prefix, given)
    if request_id is None:
        raise unknown_call(where)
    return request_id


def unknown_call(where: str) -> BadParameter:
    return BadParameter(where, "No call of this task has this id.", "unknown_call")
