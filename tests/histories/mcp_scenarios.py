"""Scenarios with an MCP server of ours: the tool list is read. Each returns the id of the workflow to record."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.launch import TESTER
from tests.support.mcp_server import mcp_server
from tests.support.stack import Stack, eventually


def _port(stack: Stack) -> int:
    return int(stack.settings.allow_private_hosts[0].partition(":")[2])


def _agent(name: str, url: str) -> dict[str, Any]:
    return {**TESTER, "name": name, "mcp_servers": {"pages": {"url": url}}}


async def _discovery(stack: Stack) -> str:
    async with mcp_server(_port(stack)) as server:
        (await stack.http.put("/agents/listed", json=_agent("listed", server.url))).raise_for_status()

    async def seen() -> str | None:
        return next(iter([one.id async for one in stack.client.list_workflows('WorkflowType="ToolDiscovery"')]), None)

    return await eventually(seen, what="the workflow is listed")


MCP_SCENARIOS: dict[str, Callable[[Stack], Awaitable[str]]] = {"tool_discovery": _discovery}
