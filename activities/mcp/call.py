"""A call of an MCP tool, from its start until its server has finished it."""

from contextlib import AbstractAsyncContextManager

from mcp.client.session import ClientSession
from mcp_types import INVALID_PARAMS, InputRequiredResult

from activities.mcp.connection import McpFailure, connected, filled_headers
from activities.mcp.remote_task import (
    Called,
    CreatedTask,
    TaskState,
    asking,
    call_tool,
    cancel_task,
    get_task,
    poll_ms,
    responses,
    task_result,
    update_task,
)
from activities.mcp.results import tool_result
from activities.mcp.tool_list import listed
from activities.tools.support.output import clean
from activities.tools.tool import ToolContext, ToolResult
from domain.agents.mcp_server import McpServer, McpTool
from domain.events import McpToolChanged
from domain.json_object import JsonObject
from domain.json_schema import errors
from domain.sessions.remote_call import RemoteCall
from domain.sessions.step import Effect

STOP_SECONDS = 15.0
RETRY_MS = 5_000  # until a server that could not be reached is asked again
MOST_ANSWERED = 500  # forms that are remembered

NOT_CALLED = "The tool was not called."
UNKNOWN = "The call was sent, so that it may have happened in full, in part or not at all. Check before you repeat it."
CHANGED = (
    "{} is no longer the tool that this agent was made with: the server {}. It was not called. A person has to look at "
    "it and refresh the agent."
)


class RunningMcpCall:
    """One call of a tool, from its beginning or from where an earlier attempt left it."""

    def __init__(
        self, name: str, server_name: str, server: McpServer, tool: McpTool, arguments: JsonObject, context: ToolContext
    ) -> None:
        self._name = name
        self._server_name = server_name
        self._server = server
        self._tool = tool
        self._arguments = arguments
        self._context = context
        self._sent = False
        self._remote = context.remote or RemoteCall()  # the state after everything that was sent

    async def run(self) -> ToolResult:
        known = self._context.remote
        if known is None and (problems := errors(self._tool.input_schema, self._arguments)):
            lines = [f"- {'.'.join(map(str, one.absolute_path)) or 'arguments'}: {one.message}" for one in problems]
            return _failed(f"The arguments of {self._name} do not fit. {NOT_CALLED}\n" + "\n".join(lines))
        if known is not None and known.task_id is None and known.sent and self._once:
            return _failed(UNKNOWN)
        found: Called | TaskState | ToolResult | None = None
        try:
            async with self._connected(self._server.timeout_s) as session:
                found = await (self._begin(session) if known is None else self._continue(session, known))
        except McpFailure as error:
            if found is None:  # else only closing the connection failed, which is harmless
                return self._lost(error)
        assert found is not None
        try:
            return await self._read(found)
        except McpFailure as refusal:  # it asks for something that we do not allow, or its result cannot be read
            await self._cancel()
            return _failed(f"{refusal} {UNKNOWN if self._once else ''}".strip())

    async def stop(self) -> ToolResult:
        """Pass the stop of the session on."""
        return _failed(f"Interrupted: the session was told to stop while this call ran. {await self._cancel()}")

    async def _cancel(self) -> str:
        """Cancel the task at the server; returns a sentence about the result."""
        if self._remote.task_id is None:
            return "It waited for an answer there."
        try:
            async with self._connected(STOP_SECONDS) as session:
                await cancel_task(session, self._remote.task_id)
        except McpFailure as error:
            return f"It may continue at its server, which could not be told: {error}"
        return "Its server was told to cancel it."

    @property
    def _once(self) -> bool:
        return self._server.effect_of(self._tool) is Effect.ONCE

    def _connected(self, seconds: float) -> AbstractAsyncContextManager[ClientSession]:
        headers = filled_headers(self._server, self._context.state.variables)
        return connected(self._context.fetcher, self._server, headers, seconds)

    async def _begin(self, session: ClientSession) -> Called | ToolResult:
        now = next((one for one in await listed(session, self._server) if one.name == self._tool.name), None)
        if now != self._tool:
            return _changed(self._name, self._server_name, gone=now is None)
        self._sent = True
        return await self._call(session, RemoteCall(), {})

    async def _continue(self, session: ClientSession, known: RemoteCall) -> Called | TaskState:
        answers = responses(known.forms, self._context.answers)
        answered = [*known.answered, *answers][-MOST_ANSWERED:]
        self._remote = known.model_copy(update={"forms": [], "answered": answered, "sent": False})
        if known.task_id is None:
            self._sent = True
            await self._context.hold(known.model_copy(update={"sent": True}))
            return await self._call(session, known, answers)
        if answers:
            await update_task(session, known.task_id, answers)
        return await get_task(session, known.task_id)

    async def _call(self, session: ClientSession, remote: RemoteCall, answers: JsonObject) -> Called:
        return await call_tool(session, self._tool.name, self._arguments, self._context.key, remote, answers)

    async def _read(self, found: Called | TaskState | ToolResult) -> ToolResult:
        if isinstance(found, ToolResult):
            return found
        if isinstance(found, CreatedTask):
            self._remote = self._remote.model_copy(update={"task_id": found.task_id})
            return _waiting(self._remote, found.poll_interval_ms)
        if isinstance(found, InputRequiredResult):
            self._remote = self._remote.model_copy(update={"state": found.request_state})
            return _waiting(asking(self._remote, found.input_requests or {}), None)
        if isinstance(found, TaskState):
            if found.status != "completed":
                return self._unfinished(found)
            found = task_result(found)
        origin = f"{self._server_name} · {self._server.host} · {self._tool.name}"
        return await tool_result(found, origin, self._name, self._context)

    def _unfinished(self, state: TaskState) -> ToolResult:
        if state.status == "cancelled":
            return _failed(f"{self._name} was cancelled at its server.")
        if state.status == "failed":
            reason = " ".join(clean(str((state.error or {}).get("message", ""))).split())[:500]
            return _failed(f"{self._name} failed at its server: {reason or 'no reason given'}")
        if state.status == "input_required":
            self._remote = asking(self._remote, state.input_requests or {})
        return _waiting(self._remote, state.poll_interval_ms)

    def _lost(self, error: McpFailure) -> ToolResult:
        if self._remote.task_id is not None:
            if error.code == INVALID_PARAMS:
                return _failed(f"The server does not know the task of this call any more. {error}")
            # Its task continues there and is polled again; answers that were not sent are sent again.
            return _waiting(self._context.remote or self._remote, RETRY_MS)
        if not self._sent:
            return _failed(f"{error} {NOT_CALLED}")
        return _failed(f"{error} {UNKNOWN}" if self._once else str(error))


def _waiting(remote: RemoteCall, interval: int | None) -> ToolResult:
    return ToolResult("", remote=remote, wait_ms=poll_ms(interval))


def _failed(text: str) -> ToolResult:
    return ToolResult(text, failed=True)


def _changed(name: str, server: str, *, gone: bool) -> ToolResult:
    how = "has it no longer" if gone else "describes it differently now"
    event = McpToolChanged(tool=name, server=server, gone=gone)
    return ToolResult(CHANGED.format(name, how), failed=True, events=[event])
