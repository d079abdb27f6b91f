"""The tool set_status: the status of a subagent in its parent's registry."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult, clean
from domain.events import Progress
from domain.sessions.step import Effect, preview


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    status: str = Field(min_length=1, max_length=500, description="How things are, in a few words.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    status = " ".join(clean(input.status).split())
    if not status:
        return ToolResult("The status has no visible text.", failed=True)
    return ToolResult("Noted.", events=[Progress(message=status)], progress=status, status_text=status)


TOOL = Tool(
    name="set_status",
    description="Publish your status: the agent that started you sees it in its list of subagents.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    bookkeeping=True,
    talks=True,
    kind=None,
    summary=lambda input: preview(input.status, 120),
)
