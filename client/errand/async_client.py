"""The asynchronous client: the same operations as in client.py, which describes them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2

from errand import requests
from errand.client import AuditLog, Mode, Scope
from errand.events import Event
from errand.models import Artifact, File, InputRequest, Result, SessionHandle, Task, TaskHandle
from errand.requests import Answer, Flow, Input, Request, TaskRef, Upload
from errand.transport import Connection, EventReader, Retries, answer_of, sent_as

T = TypeVar("T")


class AsyncErrand:
    """Like `Errand`, with coroutines."""

    def __init__(self, url: str | None = None, key: str | None = None, *, patience: float = 60.0) -> None:
        self._connection = Connection(url, key)
        self._patience = patience
        self._http: httpx2.AsyncClient | None = None
        self._former: list[httpx2.AsyncClient] = []  # connections to former addresses of the server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for http in (*self._former, *([self._http] if self._http else [])):
            await http.aclose()
        self._http, self._former = None, []

    async def submit(
        self,
        agent: str,
        input: Input,
        *,
        files: Iterable[Upload] = (),
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> TaskHandle:
        return await self._run(requests.submit(agent, input, files, idempotency_key, fields))

    async def task(self, task: TaskRef) -> Task:
        return await self._run(requests.task(task))

    async def tasks(self, **filters: Any) -> AsyncIterator[Task]:
        cursor: str | None = None
        while True:
            page, cursor = await self._run(requests.page_of_tasks(filters, cursor))
            for one in page:
                yield one
            if cursor is None:
                return

    async def wait(self, task: TaskRef, *, audit_log: AuditLog = "short") -> Result:
        """Wait without a timeout; use asyncio.timeout for one."""
        while True:
            if found := await self._run(requests.result(task, audit_log, requests.WAIT_SECONDS)):
                return found

    async def result(self, task: TaskRef, *, audit_log: AuditLog = "short") -> Result:
        found = await self._run(requests.result(task, audit_log))
        assert found is not None
        return found

    async def stream(self, task: TaskRef, *, after: int = 0) -> AsyncIterator[Event]:
        reader = EventReader(requests.id_of(task), after, self._patience)
        while not reader.done:
            try:
                async with self._client().sse(reader.path, headers=reader.headers) as source:
                    if not source.response.is_success:
                        await source.response.aread()
                    if reader.begins(source.response):
                        async for sent in source:
                            if event := reader.event(sent.data):
                                yield event
                pause = reader.pause_after_end()
            except httpx2.RequestError as error:
                pause = reader.pause_after(error)
                self._find_again()
            await asyncio.sleep(pause)

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
        arguments: dict[str, Any] | None = None,
    ) -> None:
        await self._run(requests.approve(task, approved, request, notes, arguments))

    async def send(
        self, conversation: str, input: Input, *, if_busy: str = "queue", idempotency_key: str | None = None
    ) -> SessionHandle:
        return await self._run(requests.send(conversation, input, if_busy, idempotency_key))

    async def fire(
        self,
        conversation: str,
        input: Input | None = None,
        *,
        if_busy: str = "reject",
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
        retries = Retries(self._patience)
        while True:
            try:
                response = await self._client().request(request.method, request.path, **sent_as(request))
                answered = answer_of(response)
                pause = retries.pause_after(answered)
                if pause is None:
                    return answered
            except httpx2.RequestError as error:
                pause = retries.pause_after(error)
                self._find_again()
            await asyncio.sleep(pause)

    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            self._http = httpx2.AsyncClient(**self._connection.options())
        return self._http

    def _find_again(self) -> None:
        if self._http is not None and self._connection.moved():
            self._former.append(self._http)
            self._http = None
