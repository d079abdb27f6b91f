"""The tool list_subagents: which subagents this conversation has, and their states."""

from pydantic import BaseModel, ConfigDict

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


async def run(input: Input, context: ToolContext) -> ToolResult:
    return ToolResult(await context.subagents.listing(context.ref))


TOOL = Tool(
    name="list_subagents",
    description="List the subagents you have started in this conversation with their ids and states.",
    input=Input,
    run=run,
    effect=Effect.READ,
    bookkeeping=True,
    delegates=True,
    polls=True,
    summary=lambda input: "list subagents",
)
