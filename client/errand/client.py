"""The blocking client. requests.py decides what it sends; this module does the I/O."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import httpx2

from errand import requests
from errand.events import Event
from errand.models import Artifact, File, InputRequest, Result, SessionHandle, Task, TaskHandle
from errand.requests import Answer, Flow, Input, Request, TaskRef, Upload
from errand.transport import Connection, EventReader, Retries, answer_of, sent_as

T = TypeVar("T")
AuditLog = Literal["short", "full"]
Scope = Literal["session", "tree"]
Mode = Literal["hard", "graceful"]


class Errand:
    """Talks to an Errand server: the one at `url`, else the stack that runs on this machine.

    `patience`: the number of seconds for which requests are repeated while the server is unreachable or busy. Repeating
    is safe, because everything that starts or changes something has an idempotency key.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, patience: float = 60.0) -> None:
        self._connection = Connection(url, key)
        self._patience = patience
        self._http: httpx2.Client | None = None
        self._former: list[httpx2.Client] = []  # connections to former addresses of the server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for http in (*self._former, *([self._http] if self._http else [])):
            http.close()
        self._http, self._former = None, []

    def submit(
        self,
        agent: str,
        input: Input,
        *,
        files: Iterable[Upload] = (),
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> TaskHandle:
        """Start a task. `files` are uploaded for its workspace; `fields` is the rest of the body of POST /tasks."""
        return self._run(requests.submit(agent, input, files, idempotency_key, fields))

    def task(self, task: TaskRef) -> Task:
        return self._run(requests.task(task))

    def tasks(self, **filters: Any) -> Iterator[Task]:
        """All tasks, the newest first; `filters` are the parameters of GET /tasks."""
        cursor: str | None = None
        while True:
            page, cursor = self._run(requests.page_of_tasks(filters, cursor))
            yield from page
            if cursor is None:
                return

    def wait(self, task: TaskRef, *, timeout: float | None = None, audit_log: AuditLog = "short") -> Result:
        """The result once the task has ended, in whichever way. Raises TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = requests.WAIT_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the task {requests.id_of(task)} has not ended within {timeout} seconds")
            if found := self._run(requests.result(task, audit_log, left)):
                return found

    def result(self, task: TaskRef, *, audit_log: AuditLog = "short") -> Result:
        """The result of an ended task; raises Conflict for any other task."""
        found = self._run(requests.result(task, audit_log))
        assert found is not None
        return found

    def stream(self, task: TaskRef, *, after: int = 0) -> Iterator[Event]:
        """Every event after number `after`, once and in order, up to the last; it reconnects as needed."""
        reader = EventReader(requests.id_of(task), after, self._patience)
        while not reader.done:
            try:
                with self._client().sse(reader.path, headers=reader.headers) as source:
                    if not source.response.is_success:
                        source.response.read()
                    if reader.begins(source.response):
                        for sent in source:
                            if event := reader.event(sent.data):
                                yield event
                pause = reader.pause_after_end()
            except httpx2.RequestError as error:
                pause = reader.pause_after(error)
                self._find_again()
            time.sleep(pause)

    def cancel(self, task: TaskRef, reason: str = "", *, scope: Scope = "session", mode: Mode = "hard") -> Task:
        return self._run(requests.cancel(task, reason, scope, mode))

    def steer(self, task: TaskRef, message: str) -> None:
        """Send a message to a running task, which reads it before its next step."""
        self._run(requests.steer(task, message))

    def input_requests(self, task: TaskRef) -> list[InputRequest]:
        """The open requests of the task."""
        return self._run(requests.input_requests(task))

    def answer(self, task: TaskRef, value: Any, *, request: str | InputRequest | None = None) -> None:
        """Answer a request; if none is given, the only open one."""
        self._run(requests.answer(task, value, request))

    def approve(
        self,
        task: TaskRef,
        approved: bool = True,
        *,
        request: str | InputRequest | None = None,
        notes: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        """Approve or deny a call or a plan; `arguments` change the call."""
        self._run(requests.approve(task, approved, request, notes, arguments))

    def send(
        self, conversation: str, input: Input, *, if_busy: str = "queue", idempotency_key: str | None = None
    ) -> SessionHandle:
        """Send a further message to a conversation."""
        return self._run(requests.send(conversation, input, if_busy, idempotency_key))

    def fire(
        self,
        conversation: str,
        input: Input | None = None,
        *,
        if_busy: str = "reject",
        idempotency_key: str | None = None,
    ) -> SessionHandle:
        """Deliver everything in the mailbox of a conversation as one turn."""
        return self._run(requests.fire(conversation, input, if_busy, idempotency_key))

    def upload(self, file: Upload, *, name: str | None = None) -> File:
        return self._run(requests.upload(file, name))

    def download(self, file: str | File | Artifact, *, to: str | Path | None = None) -> bytes:
        """The bytes of a file or an artifact; also written to `to` if that is given."""
        content = self._run(requests.download(file))
        if to is not None:
            Path(to).write_bytes(content)
        return content

    def _run(self, flow: Flow[T]) -> T:
        try:
            request = next(flow)
            while True:
                request = flow.send(self._send(request))
        except StopIteration as end:
            outcome: T = end.value
            return outcome

    def _send(self, request: Request) -> Answer:
        retries = Retries(self._patience)
        while True:
            try:
                response = self._client().request(request.method, request.path, **sent_as(request))
                answered = answer_of(response)
                pause = retries.pause_after(answered)
                if pause is None:
                    return answered
            except httpx2.RequestError as error:
                pause = retries.pause_after(error)
                self._find_again()
            time.sleep(pause)

    def _client(self) -> httpx2.Client:
        if self._http is None:
            self._http = httpx2.Client(**self._connection.options())
        return self._http

    def _find_again(self) -> None:
        """Look the server up again: a restarted local stack may have another port. Others may still read from the
        former one."""
        if self._http is not None and self._connection.moved():
            self._former.append(self._http)
            self._http = None
