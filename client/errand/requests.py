"""Every operation of the client, defined once: a generator that yields requests, receives the responses and returns the
result.

Two small clients do the I/O, a blocking one and an asynchronous one; see client.py.
"""

import mimetypes
import secrets
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from errand.errors import ErrandError, Problem
from errand.models import Artifact, File, InputRequest, Result, SessionHandle, Task, TaskHandle

T = TypeVar("T")
WAIT_SECONDS = 30  # per request for a result
Input = str | dict[str, Any]
Upload = str | Path | tuple[str, bytes]  # a path, or a name and its bytes
TaskRef = str | TaskHandle | SessionHandle | Task | Result


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


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


Flow = Generator[Request, Answer, T]


def id_of(task: TaskRef) -> str:
    return task if isinstance(task, str) else task.task_id


def path_of(*segments: str) -> str:
    return "/" + "/".join(quote(segment, safe="") for segment in segments)


def submit(
    agent: str, input: Input, files: Iterable[Upload], idempotency_key: str | None, fields: Mapping[str, Any]
) -> Flow[TaskHandle]:
    """`fields`: the rest of the body. The key makes a repeated request the same task."""
    body = {"agent": agent, "input": input, **{name: value for name, value in fields.items() if value is not None}}
    ids = []
    for one in files:
        ids.append((yield from upload(one, None)).file_id)
    if ids:
        context = dict(body.get("context") or {})
        body["context"] = {**context, "files": [*context.get("files", []), *ids]}
    return TaskHandle.model_validate((yield _post("/tasks", body, idempotency_key)).value())


def task(task: TaskRef) -> Flow[Task]:
    return Task.model_validate((yield Request("GET", path_of("tasks", id_of(task)))).value())


def page_of_tasks(filters: Mapping[str, Any], cursor: str | None) -> Flow[tuple[list[Task], str | None]]:
    given = {name: value for name, value in {**filters, "cursor": cursor}.items() if value is not None}
    body = (yield Request("GET", "/tasks", params=given)).value()
    return [Task.model_validate(one) for one in body["items"]], body["next_cursor"]


def result(task: TaskRef, audit_log: Literal["short", "full"], wait: float = 0) -> Flow[Result | None]:
    """None if the task has not ended in this time."""
    params = {"audit_log": audit_log, "wait": max(0, min(WAIT_SECONDS, round(wait + 0.5)) if wait else 0)}
    answer = yield Request("GET", path_of("tasks", id_of(task), "result"), params=params)
    if wait and answer.problem and answer.problem.kind == "not-terminal":
        return None
    return Result.model_validate(answer.value())


def cancel(task: TaskRef, reason: str, scope: str, mode: str) -> Flow[Task]:
    body = {"reason": reason, "scope": scope, "mode": mode}
    (yield _post(path_of("tasks", id_of(task), "cancel"), body, None)).value()
    return Task.model_validate((yield Request("GET", path_of("tasks", id_of(task)))).value())


def steer(task: TaskRef, message: str) -> Flow[None]:
    (yield _post(path_of("tasks", id_of(task), "steer"), {"message": message}, None)).value()


def input_requests(task: TaskRef) -> Flow[list[InputRequest]]:
    """The open requests, oldest first."""
    body = (yield Request("GET", path_of("tasks", id_of(task), "input-requests"))).value()
    found = [InputRequest.model_validate(one) for one in body["items"]]
    return sorted((one for one in found if one.status == "open"), key=lambda one: one.created_at)


def answer(task: TaskRef, value: Any, request: str | InputRequest | None) -> Flow[None]:
    """Answer a request, or the only open one."""
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
    approved: bool,
    request: str | InputRequest | None,
    notes: str | None,
    arguments: dict[str, Any] | None,
) -> Flow[None]:
    value = {"approved": approved, "notes": notes, "arguments": arguments}
    yield from answer(task, {name: one for name, one in value.items() if one is not None}, request)


def send(conversation: str, input: Input, if_busy: str, idempotency_key: str | None) -> Flow[SessionHandle]:
    body = {"input": input, "transport": "stream", "if_busy": if_busy}
    path = path_of("conversations", conversation, "messages")
    return SessionHandle.model_validate((yield _post(path, body, idempotency_key)).value())


def fire(conversation: str, input: Input | None, if_busy: str, idempotency_key: str | None) -> Flow[SessionHandle]:
    body = {"transport": "stream", "if_busy": if_busy} | ({} if input is None else {"input": input})
    path = path_of("conversations", conversation, "fire")
    return SessionHandle.model_validate((yield _post(path, body, idempotency_key)).value())


def upload(file: Upload, name: str | None) -> Flow[File]:
    """A repeated upload creates another file with the same content, which is stored once."""
    if isinstance(file, tuple):
        given, content = file
    else:
        given, content = Path(file).name, Path(file).read_bytes()
    named = name or given
    kind = mimetypes.guess_type(named)[0] or "application/octet-stream"
    request = Request("POST", "/files", params={"name": named}, content=content, headers={"Content-Type": kind})
    return File.model_validate((yield request).value())


def download(file: str | File | Artifact) -> Flow[bytes]:
    """The bytes of a file of the API. An artifact that is an address elsewhere is not fetched, because our key must not
    be sent to another server."""
    if isinstance(file, Artifact) and not file.url.startswith("/"):
        raise ErrandError(f"the artifact {file.name!r} is an address: {file.url}")
    answered = yield Request("GET", path_of("files", file if isinstance(file, str) else file.file_id))
    answered.value()
    return answered.content


def _post(path: str, body: dict[str, Any], idempotency_key: str | None) -> Request:
    return Request("POST", path, json=body, headers={"Idempotency-Key": idempotency_key or secrets.token_hex(16)})
