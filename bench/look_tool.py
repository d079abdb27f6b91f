"""The tool that every contestant of `bench.peers` has, as a user's own tool of Errand."""

from pydantic import BaseModel, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from bench.peers.script import result
from domain.sessions.session import Effect


class LookInput(BaseModel, extra="forbid"):
    number: int = Field(description="Which thing to look at.")


async def run(input: LookInput, context: ToolContext) -> ToolResult:
    return ToolResult(result(input.number))


TOOLS = [
    Tool(
        name="look",
        description="Look at the thing with this number.",
        input=LookInput,
        run=run,
        effect=Effect.READ,
        summary=lambda input: f"look at {input.number}",
    )
]
