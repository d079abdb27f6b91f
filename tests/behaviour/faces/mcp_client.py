"""The client of the MCP SDK, with and without the tasks extension."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client import ClientExtension, ClientRequestContext
from mcp.client.extension import ClaimContext, ResultClaim
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitRequestParams, ElicitResult, Request, RequestParams, Result
from pydantic import ConfigDict

from tests.support.stack import Stack, eventually

TASKS = "io.modelcontextprotocol/tasks"
# (request id, form) -> response, or None to leave it open
Fill = Callable[[str, dict[str, Any]], dict[str, Any] | None]


class TaskParams(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskParams, str]):
    method: str
    params: TaskParams
    name_param = "taskId"


class TaskState(Result):
    model_config = ConfigDict(extra="allow")

    status: str = ""
    status_message: str | None = None
    poll_interval_ms: int = 100
    input_requests: dict[str, Any] | None = None
    result: dict[str, Any] | None = None


class CreatedTask(Result):
    model_config = ConfigDict(extra="allow")

    result_type: Literal["task"] = "task"
    task_id: str
    status: str


async def ask_task(session: ClientSession, method: str, task_id: str, **more: Any) -> TaskState:
    request = TaskRequest(method=f"tasks/{method}", params=TaskParams(task_id=task_id, **more))
    return await session.send_request(request, TaskState)


class TasksExtension(ClientExtension):
    """Poll a task to its end, as a host does, and fill in its forms."""

    identifier = TASKS

    def __init__(self, fill: Fill) -> None:
        self._fill = fill
        self.started: list[str] = []
        self.seen: list[str] = []

    async def until(self, status: str | None = None) -> str:
        """Return the id of the task, once it was started and seen with this status."""

        async def look() -> bool:
            return bool(self.started) if status is None else status in self.seen

        await eventually(look, what=f"task {status}")
        return self.started[0]

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self._resolve)]

    async def _resolve(self, created: CreatedTask, context: ClaimContext) -> CallToolResult:
        self.started.append(created.task_id)
        return await self.follow(context.session, created.task_id)

    async def follow(self, session: ClientSession, task_id: str) -> CallToolResult:
        filled: set[str] = set()
        while True:
            state = await ask_task(session, "get", task_id)
            self.seen.append(state.status)
            for request_id, form in (state.input_requests or {}).items():
                response = None if request_id in filled else self._fill(request_id, form["params"])
                if response is not None:
                    filled.add(request_id)
                    await ask_task(session, "update", task_id, input_responses={request_id: response})
            if state.status not in ("working", "input_required"):
                return CallToolResult.model_validate(state.result or {"content": [], "isError": True})
            await asyncio.sleep(0.1)


async def no_direct_forms(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    raise AssertionError("forms are part of tasks")


@asynccontextmanager
async def mcp_client(
    stack: Stack, secret: str, tasks: TasksExtension | None = None, **more: Any
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx2.AsyncClient(headers=headers, timeout=90) as http:
        transport = streamable_http_client(f"{stack.url}/mcp", http_client=http)
        forms: dict[str, Any] = {"extensions": [tasks], "elicitation_callback": no_direct_forms} if tasks else {}
        async with Client(transport, cache=None, **forms, **more) as client:
            yield client
