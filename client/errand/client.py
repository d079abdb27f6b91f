"""The clients, a blocking and an asynchronous one. requests.py decides what they send, transport.py how; this module
does the I/O."""

import asyncio
import copy
import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, get_args, overload

import httpx2
from typing_extensions import Unpack

from errand import requests
from errand.models import Artifact, Event, File, Result, Task
from errand.requests import (
    Answer,
    AuditLog,
    Flow,
    Request,
    TaskFilters,
    TaskRef,
    id_of,
    path_of,
)
from errand.transport import Connection, EventReader, Http, Options, Retries, Server, answer_of, find_server

P = ParamSpec("P")
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])


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


def _blocking(flow: Callable[P, Flow[T]]) -> "Callable[Concatenate[Errand, P], T]":
    def method(client: "Errand", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._run(flow(*args, **kwargs))

    return _describe(method, flow)


def _awaited(flow: Callable[P, Flow[T]]) -> "Callable[Concatenate[AsyncErrand, P], Coroutine[Any, Any, T]]":
    async def method(client: "AsyncErrand", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._run(flow(*args, **kwargs))

    return _describe(method, flow)


def _describe(method: Method, flow: Callable[..., Flow[Any]]) -> Method:
    """Give a method the name, the description and the signature of its operation, for `help`."""
    functools.update_wrapper(method, flow)
    signature = inspect.signature(flow)
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *signature.parameters.values()]
    outcome = None if (given := get_args(signature.return_annotation)[-1]) is NoneType else given
    vars(method)["__signature__"] = signature.replace(parameters=parameters, return_annotation=outcome)
    return method


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

    call = _blocking(requests.call)
    submit = _blocking(requests.submit)
    task = _blocking(requests.task)

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

    cancel = _blocking(requests.cancel)
    steer = _blocking(requests.steer)
    input_requests = _blocking(requests.input_requests)
    answer = _blocking(requests.answer)
    approve = _blocking(requests.approve)
    send = _blocking(requests.send)
    fire = _blocking(requests.fire)
    upload = _blocking(requests.upload)

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

    call = _awaited(requests.call)
    submit = _awaited(requests.submit)
    task = _awaited(requests.task)

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

    cancel = _awaited(requests.cancel)
    steer = _awaited(requests.steer)
    input_requests = _awaited(requests.input_requests)
    answer = _awaited(requests.answer)
    approve = _awaited(requests.approve)
    send = _awaited(requests.send)
    fire = _awaited(requests.fire)
    upload = _awaited(requests.upload)

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
