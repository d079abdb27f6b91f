"""The client of ToolDiscovery: it starts one workflow per question and waits for the result."""

import asyncio
from datetime import timedelta

from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from domain import wire
from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools
from domain.errors import Unavailable
from domain.ids import new_id

WITHIN = timedelta(seconds=50)


class DiscoveryClient:
    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._queue = task_queue

    async def discover(self, wanted: DiscoverTools) -> DiscoveredTools:
        try:
            async with asyncio.timeout(WITHIN.total_seconds()):
                found: DiscoveredTools = await self._client.execute_workflow(
                    wire.TOOL_DISCOVERY,
                    wanted,
                    id=f"tool-discovery/{new_id()}",
                    task_queue=self._queue,
                    result_type=DiscoveredTools,
                    execution_timeout=WITHIN,
                    task_timeout=wire.TASK_TIMEOUT,
                    static_summary=f"tool lists of the MCP servers of {wanted.agent.name}",
                )
                return found
        except (WorkflowFailureError, TimeoutError) as error:
            raise Unavailable("No worker has read the tool lists of the MCP servers in time.") from error
        except (RPCError, RuntimeError) as error:
            raise Unavailable("Temporal is unreachable.") from error
