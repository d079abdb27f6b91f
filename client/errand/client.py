"""The clients, a blocking and an asynchronous one. requests.py decides what they send, transport.py how; this module
does the I/O."""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, overload

import httpx2
from typing_extensions import Unpack

from errand import requests
from errand.models import Artifact, Event, File, InputRequest, JsonObject, Result, SessionHandle, Task, TaskHandle
from errand.requests import (
    Answer,
    AuditLog,
    Flow,
    IfBusy,
    Input,
    Mode,
    Param,
    Request,
    Scope,
    TaskFields,
    TaskFilters,
    TaskRef,
    Upload,
    id_of,
    path_of,
)
from errand.transport import Connection, EventReader, Http, Options, Retries, Server, answer_of, find_server

T = TypeVar("T")


class _Client(Generic[Http]):
    """What both clients are made of."""

    _http: type[Http]

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        patience: float = 60.0,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
        http: Http | None = None,
    ) -> None:
        self._given = (url, key)
        self._options = Options(patience, timeout, dict(headers or {}))
        self._connection: Connection[Http] = Connection(self.find_server, http, self._http)

    def with_options(
        self,
        *,
        patience: float | None = None,
        timeout: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Self:
        """The same client over the same connections, with other options for some requests:
        `errand.with_options(timeout=5, headers={"X-Team": "ops"}).task(task)`."""
        other = copy.copy(self)
        other._options = self._options.change(patience, timeout, headers)
        return other

    def find_server(self) -> Server:
        """Where the server is; asked again whenever it does not answer."""
        return find_server(*self._given)

    def before_retry(self, cause: Exception | None) -> None:
        """Called before a request is repeated, or a stream opened again. A subclass may say that it waits, or raise."""


class Errand(_Client[httpx2.Client]):
    """Talks to an Errand server: the one at `url`, else the stack that runs on this machine.

    `patience`: the number of seconds for which requests are repeated while the server is unreachable or busy. Repeating
    is safe, because everything that starts or changes something has an idempotency key.
    `timeout`: the seconds of silence after which one attempt of a request has failed. `headers` are sent with every
    request. `http` is an HTTP client of yours, with its own proxies and certificates, which you close.
    """

    _http = httpx2.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, also those under a request of another thread. No further request is sent."""
        for http in self._connection.end():
            http.close()

    def call(
        self,
        method: str,
        path: str,
        model: type[T],
        *,
        params: Mapping[str, Param] | None = None,
        body: JsonObject | None = None,
        idempotency_key: str | None = None,
    ) -> T:
        """Any route of the API: `call("GET", "/triggers", models.TriggerPage)`. A POST without a key is not repeated if
        its answer is lost."""
        return self._run(requests.call(method, path, model, params or {}, body, idempotency_key))

    def submit(
        self,
        agent: str,
        input: Input,
        *,
        files: Iterable[Upload] = (),
        idempotency_key: str | None = None,
        **fields: Unpack[TaskFields],
    ) -> TaskHandle:
        """Start a task. `files` are uploaded for its workspace; `fields` is the rest of the body of POST /tasks."""
        return self._run(requests.submit(agent, input, files, idempotency_key, fields))

    def task(self, task: TaskRef) -> Task:
        return self._run(requests.task(task))

    def tasks(self, **filters: Unpack[TaskFilters]) -> Iterator[Task]:
        """All tasks, the newest first; `filters` are the parameters of GET /tasks."""
        cursor: str | None = None
        while True:
            page = self._run(requests.page_of_tasks(filters, cursor))
            yield from page.items
            if (cursor := page.next_cursor) is None:
                return

    @overload
    def wait(self, task: TaskRef, *, timeout: float | None = None, audit_log: AuditLog = "short") -> Result: ...
    @overload
    def wait(
        self, task: TaskRef, *, output: type[T], timeout: float | None = None, audit_log: AuditLog = "short"
    ) -> Result[T | None]: ...
    def wait(
        self,
        task: TaskRef,
        *,
        output: type[T] | None = None,
        timeout: float | None = None,
        audit_log: AuditLog = "short",
    ) -> Result:
        """The result once the task has ended, in whichever way. Raises TimeoutError after `timeout` seconds.

        `output`: the type of a completed task's output, such as the pydantic model of the agent's output schema; the
        output of a task that ended in another way is None then.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = requests.WAIT_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the task {id_of(task)} has not ended within {timeout} seconds")
            if found := self._run(requests.result(task, audit_log, output, left)):
                return found

    @overload
    def result(self, task: TaskRef, *, audit_log: AuditLog = "short") -> Result: ...
    @overload
    def result(self, task: TaskRef, *, output: type[T], audit_log: AuditLog = "short") -> Result[T | None]: ...
    def result(self, task: TaskRef, *, output: type[T] | None = None, audit_log: AuditLog = "short") -> Result:
        """The result of an ended task; raises Conflict for any other task."""
        found = self._run(requests.result(task, audit_log, output))
        assert found is not None
        return found

    def stream(self, task: TaskRef, *, after: int = 0) -> Iterator[Event]:
        """Every event after number `after`, once and in order, up to the one that is `Ended`; it reconnects as
        needed."""
        yield from self._events(EventReader(path_of("tasks", id_of(task), "events"), after, self._options.patience))

    def stream_conversation(self, conversation: str, *, after: int = 0) -> Iterator[Event]:
        """Every event of all sessions of a conversation after its number `after`. It has no end, because a further
        message may come at any time."""
        path = path_of("conversations", conversation, "events")
        yield from self._events(EventReader(path, after, self._options.patience, of_conversation=True))

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
        arguments: JsonObject | None = None,
    ) -> None:
        """Approve or deny a call or a plan; `arguments` change the call."""
        self._run(requests.approve(task, approved, request, notes, arguments))

    def send(
        self, conversation: str, input: Input, *, if_busy: IfBusy = "queue", idempotency_key: str | None = None
    ) -> SessionHandle:
        """Send a further message to a conversation."""
        return self._run(requests.send(conversation, input, if_busy, idempotency_key))

    def fire(
        self,
        conversation: str,
        input: Input | None = None,
        *,
        if_busy: Literal["reject", "queue"] = "reject",
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
        retries = Retries(self._options.patience)
        while True:
            cause: Exception | None
            try:
                arguments = self._connection.arguments(request, self._options)
                answered = answer_of(self._connection.http().request(**arguments))
                cause, pause = answered.problem, retries.pause_after(answered, request)
                if pause is None:
                    return answered
            except httpx2.RequestError as error:
                cause, pause = error, retries.pause_after(error, request)
                self._connection.look_again()
            self.before_retry(cause)
            time.sleep(pause)

    def _events(self, reader: EventReader) -> Iterator[Event]:
        while not reader.done:
            cause: Exception | None = None
            try:
                arguments = reader.arguments(self._connection, self._options)
                with self._connection.http().sse(**arguments) as source:
                    if not source.response.is_success:
                        source.response.read()
                    if reader.begins(source.response):
                        for sent in source:
                            if event := reader.event(sent.data):
                                yield event
                cause, pause = reader.refusal, reader.pause_after_end()
            except httpx2.RequestError as error:
                cause, pause = error, reader.pause_after(error)
                self._connection.look_again()
            if cause and not reader.done:
                self.before_retry(cause)
            time.sleep(pause)


class AsyncErrand(_Client[httpx2.AsyncClient]):
    """Like `Errand`, with coroutines; there each operation is described."""

    _http = httpx2.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for http in self._connection.end():
            await http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        model: type[T],
        *,
        params: Mapping[str, Param] | None = None,
        body: JsonObject | None = None,
        idempotency_key: str | None = None,
    ) -> T:
        return await self._run(requests.call(method, path, model, params or {}, body, idempotency_key))

    async def submit(
        self,
        agent: str,
        input: Input,
        *,
        files: Iterable[Upload] = (),
        idempotency_key: str | None = None,
        **fields: Unpack[TaskFields],
    ) -> TaskHandle:
        return await self._run(requests.submit(agent, input, files, idempotency_key, fields))

    async def task(self, task: TaskRef) -> Task:
        return await self._run(requests.task(task))

    async def tasks(self, **filters: Unpack[TaskFilters]) -> AsyncIterator[Task]:
        cursor: str | None = None
        while True:
            page = await self._run(requests.page_of_tasks(filters, cursor))
            for one in page.items:
                yield one
            if (cursor := page.next_cursor) is None:
                return

    @overload
    async def wait(self, task: TaskRef, *, timeout: float | None = None, audit_log: AuditLog = "short") -> Result: ...
    @overload
    async def wait(
        self, task: TaskRef, *, output: type[T], timeout: float | None = None, audit_log: AuditLog = "short"
    ) -> Result[T | None]: ...
    async def wait(
        self,
        task: TaskRef,
        *,
        output: type[T] | None = None,
        timeout: float | None = None,
        audit_log: AuditLog = "short",
    ) -> Result:
        async with asyncio.timeout(timeout):
            while True:
                if found := await self._run(requests.result(task, audit_log, output, requests.WAIT_SECONDS)):
                    return found

    @overload
    async def result(self, task: TaskRef, *, audit_log: AuditLog = "short") -> Result: ...
    @overload
    async def result(self, task: TaskRef, *, output: type[T], audit_log: AuditLog = "short") -> Result[T | None]: ...
    async def result(self, task: TaskRef, *, output: type[T] | None = None, audit_log: AuditLog = "short") -> Result:
        found = await self._run(requests.result(task, audit_log, output))
        assert found is not None
        return found

    async def stream(self, task: TaskRef, *, after: int = 0) -> AsyncIterator[Event]:
        reader = EventReader(path_of("tasks", id_of(task), "events"), after, self._options.patience)
        async for event in self._events(reader):
            yield event

    async def stream_conversation(self, conversation: str, *, after: int = 0) -> AsyncIterator[Event]:
        path = path_of("conversations", conversation, "events")
        async for event in self._events(EventReader(path, after, self._options.patience, of_conversation=True)):
            yield event

    async def cancel(self, task: TaskRef, reason: str = "", *, scope: Scope = "session", mode: Mode = "hard") -> Task:
        return await self._run(requests.cancel(task, reason, scope, mode))

    async def steer(self, task: TaskRef, message: str) -> None:
        await self._run(requests.steer(task, message))

    async def input_requests(self, task: TaskRef) -> list[InputRequest]:
        return await self._run(requests.input_requests(task))

    async def answer(self, task: TaskRef, value: Any, *, request: str | InputRequest | None = None) -> None:
        await self._run(requests.answer(task, value, request))

    async def approve(
        self,
        task: TaskRef,
        approved: bool = True,
        *,
        request: str | InputRequest | None = None,
        notes: str | None = None,
        arguments: JsonObject | None = None,
    ) -> None:
        await self._run(requests.approve(task, approved, request, notes, arguments))

    async def send(
        self, conversation: str, input: Input, *, if_busy: IfBusy = "queue", idempotency_key: str | None = None
    ) -> SessionHandle:
        return await self._run(requests.send(conversation, input, if_busy, idempotency_key))

    async def fire(
        self,
        conversation: str,
        input: Input | None = None,
        *,
        if_busy: Literal["reject", "queue"] = "reject",
        idempotency_key: str | None = None,
    ) -> SessionHandle:
        return await self._run(requests.fire(conversation, input, if_busy, idempotency_key))

    async def upload(self, file: Upload, *, name: str | None = None) -> File:
        return await self._run(requests.upload(file, name))

    async def download(self, file: str | File | Artifact, *, to: str | Path | None = None) -> bytes:
        content = await self._run(requests.download(file))
        if to is not None:
            await asyncio.to_thread(Path(to).write_bytes, content)
        return content

    async def _run(self, flow: Flow[T]) -> T:
        try:
            request = next(flow)
            while True:
                request = flow.send(await self._send(request))
        except StopIteration as end:
            outcome: T = end.value
            return outcome

    async def _send(self, request: Request) -> Answer:
        retries = Retries(self._options.patience)
        while True:
            cause: Exception | None
            try:
                arguments = self._connection.arguments(request, self._options)
                answered = answer_of(await self._connection.http().request(**arguments))
                cause, pause = answered.problem, retries.pause_after(answered, request)
                if pause is None:
                    return answered
            except httpx2.RequestError as error:
                cause, pause = error, retries.pause_after(error, request)
                self._connection.look_again()
            self.before_retry(cause)
            await asyncio.sleep(pause)

    async def _events(self, reader: EventReader) -> AsyncIterator[Event]:
        while not reader.done:
            cause: Exception | None = None
            try:
                arguments = reader.arguments(self._connection, self._options)
                async with self._connection.http().sse(**arguments) as source:
                    if not source.response.is_success:
                        await source.response.aread()
                    if reader.begins(source.response):
                        async for sent in source:
                            if event := reader.event(sent.data):
                                yield event
                cause, pause = reader.refusal, reader.pause_after_end()
            except httpx2.RequestError as error:
                cause, pause = error, reader.pause_after(error)
                self._connection.look_again()
            if cause and not reader.done:
                self.before_retry(cause)
            await asyncio.sleep(pause)
