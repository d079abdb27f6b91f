"""ToolDiscovery: the API asks a worker for the tool lists of MCP servers. Only workers open outbound connections."""

from temporalio import workflow

from domain import wire
from domain.agents.mcp_discovery import DiscoveredTools, DiscoverTools
from workflows import activity_calls
from workflows.ui import TENANT


@workflow.defn(name=wire.TOOL_DISCOVERY)
class ToolDiscovery:
    @workflow.run
    async def run(self, wanted: DiscoverTools) -> DiscoveredTools:
        workflow.upsert_search_attributes([TENANT.value_set(wanted.tenant)])
        return await activity_calls.discover_tools(wanted)
