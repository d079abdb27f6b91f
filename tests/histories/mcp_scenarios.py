"""Scenarios with an MCP server: its tool list is read, its tasks are followed and cancelled.

Each returns the id of the workflow to record.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.behaviour.supervision.people import answer, waiting
from tests.support.launch import TESTER
from tests.support.mcp_server import TaskServer, mcp_server, serving
from tests.support.stack import Stack, calls, eventually


def _port(stack: Stack) -> int:
    return int(stack.settings.allow_private_hosts[0].partition(":")[2])


def _agent(name: str, url: str) -> dict[str, Any]:
    return {**TESTER, "name": name, "may_ask": True, "mcp_servers": {"pages": {"url": url}}}


async def _discovery(stack: Stack) -> str:
    async with mcp_server(_port(stack)) as server:
        (await stack.http.put("/agents/listed", json=_agent("listed", server.url))).raise_for_status()

    async def seen() -> str | None:
        return next(iter([one.id async for one in stack.client.list_workflows('WorkflowType="ToolDiscovery"')]), None)

    return await eventually(seen, what="the workflow is listed")


async def _built(stack: Stack) -> str:
    """Two tasks of a server in one step; one of them requests input."""
    async with serving(TaskServer(_port(stack))) as server:
        (await stack.http.put("/agents/builder", json=_agent("builder", server.url))).raise_for_status()
        script = calls(*((f"mcp__pages__{name}", {"target": "x"}) for name in ("build", "ask_build")))
        task_id = await stack.submit(script, "builder")
        [request] = await waiting(stack, task_id)
        (await answer(stack, task_id, request["id"], {"target": "y"})).raise_for_status()
        server.done |= {"build-1", "build-2", "ask_build-1", "ask_build-2"}
        assert (await stack.wait(task_id))["status"] == "completed"
    return f"session/{task_id}"


async def _cancelled(stack: Stack) -> str:
    async with serving(TaskServer(_port(stack))) as server:
        (await stack.http.put("/agents/builder", json=_agent("builder", server.url))).raise_for_status()
        task_id = await stack.submit(calls(("mcp__pages__build", {"target": "x"})), "builder")

        async def polled() -> bool:
            return bool(server.polls)

        await eventually(polled)
        await stack.cancel(task_id)
        await stack.wait(task_id)
        assert server.cancelled
    return f"session/{task_id}"


MCP_SCENARIOS: dict[str, Callable[[Stack], Awaitable[str]]] = {
    "tool_discovery": _discovery,
    "remote_calls": _built,
    "remote_call_cancelled": _cancelled,
}
