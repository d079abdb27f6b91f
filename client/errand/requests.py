"""Every operation of the client, defined once: a generator that yields requests, receives the responses and returns the
result.

Two small clients do the I/O, a blocking one and an asynchronous one; see client.py. Most operations become methods of
both with this signature and this description.
"""

import mimetypes
import secrets
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError
from typing_extensions import Unpack

from errand.errors import ErrandError, Problem, Unexpected
from errand.models import (
    Artifact,
    File,
    InputRequest,
    InputRequestPage,
    JsonObject,
    Result,
    SessionHandle,
    Status,
    Task,
    TaskHandle,
    TaskPage,
)

T = TypeVar("T")
WAIT_SECONDS = 30  # per request for a result
Input = str | JsonObject
Upload = str | Path | tuple[str, bytes]  # a path, or a name and its bytes
TaskRef = str | TaskHandle | SessionHandle | Task | Result
AuditLog = Literal["short", "full"]
Scope = Literal["session", "tree"]
Mode = Literal["hard", "graceful"]
IfBusy = Literal["reject", "queue", "steer"]
Param = str | int | float | bool | None | Sequence[str]


class Rule(TypedDict, total=False):
    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]


class Boundary(TypedDict, total=False):
    tools: list[str] | None
    hosts: list[str] | None
    paths: list[str] | None


class Context(TypedDict, total=False):
    files: list[str]
    archives: list[str]
    notes: list[str]
    history_session: str | None
    history: list[JsonObject]
    environment: dict[str, str]
    variables: dict[str, str]


class Config(TypedDict, total=False):
    ttl: int | None
    max_steps: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    max_tool_calls: int | None
    tree: JsonObject | None
    model: str | None
    sandbox: Literal["isolated", "networked"] | None
    input_timeout: int | None
    on_input_timeout: Literal["cancel", "deny", "default"] | None
    notify: list[str]
    reminder_after: int | None
    escalate_after: int | None
    escalate_to: str | dict[str, str] | None
    routes: dict[str, str]
    approval_required: bool
    external_tools: list[JsonObject]
    mcp_servers: dict[str, JsonObject]
    instructions: str | None
    output_schema: JsonObject | None
    model_settings: JsonObject | None
    dry_run: bool
    retention: int | None
    await_children: bool | None
    environment: str | None
    ref: str | None
    refs: dict[str, str]
    repository: str | None
    repositories: dict[str, str]
    credentials: dict[str, JsonObject]
    attempts: int | None


class TaskFields(TypedDict, total=False):
    """The body of POST /tasks, besides the agent and the input; docs/api.md describes each."""

    title: str | None
    acceptance_criteria: list[str | JsonObject]
    constraints: list[str]
    permissions: list[Rule]
    boundary: Boundary | None
    tags: list[str]
    user_id: str | None
    context: Context
    config: Config


class TaskFilters(TypedDict, total=False):
    """The parameters of GET /tasks; `limit` is the size of a page."""

    status: Status | list[Status]
    agent: str | None
    conversation_id: str | None
    top_level: bool
    own: bool
    text: str | None
    id_prefix: str | None
    created_after: datetime | None
    limit: int


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait: float = 0  # seconds that the server was asked to wait before it answers
    harmless: bool = False  # a repetition changes nothing more

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again after its response was lost."""
        return self.method != "POST" or self.harmless or "Idempotency-Key" in self.headers


@dataclass(frozen=True)
class Answer:
    """A response, or the reason for a refusal."""

    body: Any = None
    content: bytes = b""
    problem: Problem | None = None

    def value(self) -> Any:
        if self.problem is not None:
            raise self.problem
        return self.body

    def parse(self, model: type[T]) -> T:
        return parse(model, self.value())


Flow = Generator[Request, Answer, T]


def parse(model: type[T], body: Any) -> T:
    try:
        return TypeAdapter(model).validate_python(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "its answer"
        raise Unexpected(
            f"the server answers, but not as this version of Errand does ({place}: {first['msg']})"
        ) from None


def id_of(task: TaskRef) -> str:
    return task if isinstance(task, str) else task.task_id


def path_of(*segments: str) -> str:
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


def call(
    method: str,
    path: str,
    model: type[T],
    *,
    params: Mapping[str, Param] | None = None,
    body: JsonObject | None = None,
    idempotency_key: str | None = None,
) -> Flow[T]:
    """Any route of the API: `call("GET", "/triggers", models.TriggerPage)`. A POST without a key is not repeated if its
    answer is lost."""
    headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
    return (yield Request(method, path, params=_drop_nulls(params or {}), json=body, headers=headers)).parse(model)


def submit(
    agent: str,
    input: Input,
    *,
    files: Iterable[Upload] = (),
    idempotency_key: str | None = None,
    **fields: Unpack[TaskFields],
) -> Flow[TaskHandle]:
    """Start a task. `files` are uploaded for its workspace; `fields` is the rest of the body of POST /tasks."""
    body: JsonObject = {"agent": agent, "input": input, **_drop_nulls(fields)}
    ids = []
    for one in files:
        ids.append((yield from upload(one)).file_id)
    if ids:
        context = dict(body.get("context") or {})
        body["context"] = {**context, "files": [*context.get("files", []), *ids]}
    return (yield _post("/tasks", body, idempotency_key)).parse(TaskHandle)


def task(task: TaskRef) -> Flow[Task]:
    """The task as it is now: status, progress, plan, usage."""
    return (yield Request("GET", path_of("tasks", id_of(task)))).parse(Task)


def page_of_tasks(filters: TaskFilters, cursor: str | None) -> Flow[TaskPage]:
    given = _drop_nulls({**filters, "cursor": cursor})
    params = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()}
    return (yield Request("GET", "/tasks", params=params)).parse(TaskPage)


def result(task: TaskRef, audit_log: AuditLog, output: type[T] | None, wait: float = 0) -> Flow[Result[Any] | None]:
    """None if the task has not ended in this time. `output` is the type of a completed task's output; a task that ended
    in another way has none of this type."""
    seconds = max(1, min(WAIT_SECONDS, round(wait + 0.5))) if wait else 0
    params = {"audit_log": audit_log, "wait": seconds}
    answer = yield Request("GET", path_of("tasks", id_of(task), "result"), params=params, wait=seconds)
    if wait and answer.problem and answer.problem.kind == "not-terminal":
        return None
    found = answer.parse(Result)
    if output is None:
        return found
    return found.model_copy(update={"output": parse(output, found.output) if found.completed else None})


def cancel(task: TaskRef, reason: str = "", *, scope: Scope = "session", mode: Mode = "hard") -> Flow[Task]:
    """Stop a task; with the scope `tree` its subagents too. A graceful one lets running tools finish."""
    body = {"reason": reason, "scope": scope, "mode": mode}
    return (yield _post(path_of("tasks", id_of(task), "cancel"), body, None)).parse(Task)


def steer(task: TaskRef, message: str) -> Flow[None]:
    """Send a message to a running task, which reads it before its next step."""
    (yield _post(path_of("tasks", id_of(task), "steer"), {"message": message}, None)).value()


def input_requests(task: TaskRef) -> Flow[list[InputRequest]]:
    """The open requests of the task, oldest first."""
    page = (yield Request("GET", path_of("tasks", id_of(task), "input-requests"))).parse(InputRequestPage)
    return sorted((one for one in page.items if one.status == "open"), key=lambda one: one.created_at)


def answer(task: TaskRef, value: Any, *, request: str | InputRequest | None = None) -> Flow[None]:
    """Answer a request; if none is given, the only open one."""
    if request is None:
        found = yield from input_requests(task)
        if len(found) != 1:
            raise ErrandError(f"the task waits for {len(found)} answers: say which request this one is for")
        request = found[0]
    request_id = request if isinstance(request, str) else request.id
    body = {"response_to": request_id, "input": value}
    (yield _post(path_of("tasks", id_of(task), "input"), body, None)).value()


def approve(
    task: TaskRef,
    approved: bool = True,
    *,
    request: str | InputRequest | None = None,
    notes: str | None = None,
    arguments: JsonObject | None = None,
) -> Flow[None]:
    """Approve or deny a call or a plan; `arguments` change the call."""
    value = _drop_nulls({"approved": approved, "notes": notes, "arguments": arguments})
    yield from answer(task, value, request=request)


def send(
    conversation: str, input: Input, *, if_busy: IfBusy = "queue", idempotency_key: str | None = None
) -> Flow[SessionHandle]:
    """Send a further message to a conversation."""
    body = {"input": input, "transport": "stream", "if_busy": if_busy}
    path = path_of("conversations", conversation, "messages")
    return (yield _post(path, body, idempotency_key)).parse(SessionHandle)


def fire(
    conversation: str,
    input: Input | None = None,
    *,
    if_busy: Literal["reject", "queue"] = "reject",
    idempotency_key: str | None = None,
) -> Flow[SessionHandle]:
    """Deliver everything in the mailbox of a conversation as one turn."""
    body = _drop_nulls({"transport": "stream", "if_busy": if_busy, "input": input})
    path = path_of("conversations", conversation, "fire")
    return (yield _post(path, body, idempotency_key)).parse(SessionHandle)


def upload(file: Upload, *, name: str | None = None) -> Flow[File]:
    """A repeated upload creates another file with the same content, which is stored once."""
    if isinstance(file, tuple):
        given, content = file
    else:
        given, content = Path(file).name, Path(file).read_bytes()
    named = name or given
    kind = mimetypes.guess_type(named)[0] or "application/octet-stream"
    headers = {"Content-Type": kind}
    request = Request("POST", "/files", params={"name": named}, content=content, headers=headers, harmless=True)
    return (yield request).parse(File)


def download(file: str | File | Artifact) -> Flow[bytes]:
    """The bytes of a file of the API. An artifact that is an address elsewhere is not fetched, because our key must not
    be sent to another server."""
    if isinstance(file, Artifact) and not file.url.startswith("/"):
        raise ErrandError(f"the artifact {file.name!r} is an address: {file.url}")
    answered = yield Request("GET", path_of("files", file if isinstance(file, str) else file.file_id))
    answered.value()
    return answered.content


def _drop_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _post(path: str, body: JsonObject, idempotency_key: str | None) -> Request:
    return Request("POST", path, json=body, headers={"Idempotency-Key": idempotency_key or secrets.token_hex(16)})
