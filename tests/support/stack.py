"""The stack under test: one real embedded stack for the whole run, with the methods by which tests use it."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from activities.events import EventWriter
from activities.notifications.dispatcher import Dispatcher
from activities.sessions.sweep import Sweep
from activities.workspaces import Workspaces
from deploy import local
from deploy.child import tail
from deploy.data_dir import secret_in, ui_access_file
from deploy.stack import variables
from deploy.state import PartInfo, StackInfo
from domain.ids import new_id
from domain.sessions.session import TERMINAL
from settings import ROOT, Settings
from store.database import Pool

T = TypeVar("T")
PATIENCE = 60.0


async def eventually(
    look: Callable[[], Awaitable[T | None]], *, seconds: float = PATIENCE, pause: float = 0.1, what: str = ""
) -> T:
    """Call `look` until it returns something; less often the longer it takes, since each call costs CPU time. It may
    ask for a workflow that has yet to start: that happens after the response to a submission."""
    began = time.monotonic()
    while True:
        try:
            if seen := await look():
                return seen
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what or look}"
        await asyncio.sleep(max(pause, min(5 * pause, waited / 8)))


class Stack:
    """The running stack. Task ids are all a test needs to keep."""

    def __init__(self, settings: Settings, info: StackInfo, http: httpx2.AsyncClient, client: Client, pool: Pool):
        self.settings = settings
        self.root = info.data_dir
        self.url = info.api_url
        self.temporal_address = info.temporal_address
        self.temporal_ui_url = info.temporal_ui_url or ""
        self.temporal_ui_link = f"{self.temporal_ui_url}/?access={secret_in(ui_access_file(info.data_dir))}"
        self.model_url = settings.anthropic_base_url or ""
        self.database_url = local.database_url(settings)
        self.env = variables(settings) | {"ERRAND_URL": self.url, "PYTHONPATH": str(ROOT)}
        self.http = http
        self.client = client
        self.pool = pool
        self._tags: dict[str, str] = {}
        self._events = EventWriter(pool)
        workspaces = Workspaces(pool, settings.workspaces_dir)
        dispatcher = Dispatcher(pool, client, settings.task_queue, settings.delivery_hours * 3_600)
        self._sweep = Sweep(pool, client, settings.task_queue, self._events, workspaces, dispatcher)

    async def define(self, *definitions: dict[str, Any]) -> None:
        """Put agents."""
        for definition in definitions:
            answer = await self.http.put(f"/agents/{definition['name']}", json=definition)
            assert answer.is_success, answer.text

    # tasks

    async def submit(self, input: str | dict[str, Any], agent: str = "tester", **spec: Any) -> str:
        """Submit a task and return its id. `asked` finds its requests to the model by a tag that is added to text."""
        tag = new_id()
        text = f"{input}\nref {tag}" if isinstance(input, str) else input
        answer = await self.http.post("/tasks", json={"agent": agent, "input": text, **spec})
        assert answer.status_code == 202, answer.text
        task_id: str = answer.json()["task_id"]
        self._tags[task_id] = tag
        return task_id

    async def record(self, task_id: str) -> dict[str, Any]:
        answer = await self.http.get(f"/tasks/{task_id}")
        assert answer.status_code == 200, answer.text
        record: dict[str, Any] = answer.json()
        return record

    async def wait(self, task_id: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The record, once the task has ended. The request is repeated while the API is unavailable."""

        async def ended() -> dict[str, Any] | None:
            try:
                answer = await self.http.get(f"/tasks/{task_id}")
            except httpx2.TransportError:
                return None
            record: dict[str, Any] = answer.json()
            return record if record.get("status") in TERMINAL else None

        return await eventually(ended, seconds=seconds, what=f"{task_id} ended")

    async def run(self, input: str | dict[str, Any], agent: str = "tester", **spec: Any) -> dict[str, Any]:
        return await self.wait(await self.submit(input, agent, **spec))

    async def result(self, task_id: str, **query: str) -> dict[str, Any]:
        answer = await self.http.get(f"/tasks/{task_id}/result", params=query)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def cancel(self, task_id: str, **body: Any) -> httpx2.Response:
        return await self.http.post(f"/tasks/{task_id}/cancel", json=body)

    async def events(self, task_id: str, after: int = 0) -> list[dict[str, Any]]:
        """All events, after checking that they are numbered without gaps and that only the last may be terminal."""
        found: list[dict[str, Any]] = []
        while True:
            params = {"after": str(after), "limit": "1000"}
            answer = await self.http.get(
                f"/tasks/{task_id}/events", params=params, headers={"Accept": "application/json"}
            )
            assert answer.status_code == 200, answer.text
            page = answer.json()["items"]
            found += page
            if len(page) < 1000:
                break
            after = page[-1]["seq"]
        check_events(found)
        return found

    async def seen(self, task_id: str, kind: str, **fields: Any) -> dict[str, Any]:
        """Wait for the first event of this kind."""

        async def look() -> dict[str, Any] | None:
            for event in of_type(await self.events(task_id), kind):
                if all(event.get(name) == value for name, value in fields.items()):
                    return event
            return None

        return await eventually(look, what=f"{kind} {fields} of {task_id}")

    # the model, the workflow and the database behind a task

    async def asked(self, task_id: str) -> list[dict[str, Any]]:
        """The requests that reached the model for this task, oldest first."""
        async with httpx2.AsyncClient(base_url=self.model_url, timeout=20) as http:
            answer = await http.get("/_requests", headers={"x-api-key": "k"}, params={"contains": self._tags[task_id]})
        requests: list[dict[str, Any]] = answer.json()["requests"]
        return requests

    def session(self, task_id: str) -> "WorkflowHandle[Any, Any]":
        return self.client.get_workflow_handle(f"session/{task_id}")

    async def nodes(self, task_id: str) -> list[dict[str, Any]]:
        rows = await self.pool.fetch(
            "SELECT kind, step, idem, body FROM messages WHERE session_id = $1 ORDER BY created_at, id", task_id
        )
        return [{**row, "body": json.loads(row["body"])} for row in rows]

    async def age(self, task_id: str) -> None:
        """Make a session look silent for a long time, so that a sweep checks it now."""
        await self.pool.execute("UPDATE sessions SET updated_at = now() - interval '5 minutes' WHERE id = $1", task_id)

    async def sweep(self) -> None:
        """Sweep now, as one of the workers does twice a minute; like a worker it remembers which signals it sent."""
        await self._sweep.sweep()
        await self._events.flush(seconds=2)

    @asynccontextmanager
    async def without_sweeps(self) -> AsyncIterator[None]:
        """No worker begins to sweep for half a minute, as if one just had."""
        await self.pool.execute("UPDATE workers SET swept_at = now()")
        try:
            yield
        finally:
            await self.pool.execute("UPDATE workers SET swept_at = NULL")

    def workspace(self, task_id: str) -> Path:
        return self.settings.workspaces_dir / "default" / task_id / "files"

    # the processes

    def part(self, name: str) -> PartInfo:
        info = local.status(self.settings)
        assert info is not None, tail(self.root / "logs" / "stack.log")
        return next(part for part in info.parts if part.name == name)

    def pid(self, name: str) -> int:
        pid = self.part(name).pid
        assert pid is not None, f"{name} is not running"
        return pid

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self.pid(name), number)

    @contextmanager
    def frozen_supervisor(self) -> Iterator[None]:
        """Freeze the supervisor, so that a killed part is not restarted."""
        info = local.status(self.settings)
        assert info is not None
        os.kill(info.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(info.pid, signal.SIGCONT)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Freeze a part of the stack."""
        self.signal(name, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(name, signal.SIGCONT)

    async def back(self, name: str, before: int) -> None:
        """Wait until this part has another process than `before`, which is healthy."""

        async def look() -> bool:
            part = await asyncio.to_thread(self.part, name)
            return part.pid not in (None, before) and part.healthy

        await eventually(look, what=f"{name} is back")

    async def reads(self) -> bool:
        """Whether the API answers a request that needs the database."""
        try:
            return (await self.http.get("/tasks")).status_code == 200
        except httpx2.TransportError:
            return False

    async def kill(self, name: str) -> int:
        """Kill a part with -9 and return its pid; the supervisor starts the part again."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid


def check_events(events: list[dict[str, Any]]) -> None:
    if not events:
        return
    first, seen = events[0]["seq"], [event["seq"] for event in events]
    ends = [event["seq"] for event in events if event["type"] in ("task_completed", "task_failed", "task_cancelled")]
    assert ends in ([], [events[-1]["seq"]])
    # the pieces of texts are deleted a minute after the end, which leaves gaps
    trimmed = ends and not of_type(events, "message_delta", "thinking_delta")
    assert seen == (sorted(set(seen)) if trimmed else list(range(first, first + len(events))))


def of_type(events: Iterable[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] in kinds]


def calls(*listed: tuple[str, dict[str, Any]]) -> str:
    """The marker for one reply that calls these tools in parallel."""
    return f"[[script:tools json={json.dumps([{'name': name, 'input': given} for name, given in listed])}]]"


def steps(*listed: list[tuple[str, dict[str, Any]]]) -> str:
    """The marker for several replies, one after the other."""
    replies = [[{"name": name, "input": given} for name, given in reply] for reply in listed]
    return f"[[script:steps json={json.dumps(replies)}]]"
