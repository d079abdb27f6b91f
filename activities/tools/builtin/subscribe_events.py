"""The tool subscribe_events: events that other agents emit wake this agent."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.step import Effect
from domain.triggers import EVENT_PATTERN, MAX_CHARS


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(
        max_length=MAX_CHARS,
        pattern=EVENT_PATTERN,
        description="Which events: build:*:done; * is any one part, ** at the end any further parts.",
    )
    subscribe: bool = Field(True, description="false: no longer.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.events.subscribe(context.ref, input.pattern, input.subscribe)
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="subscribe_events",
    description="Subscribe to events that other agents emit: each arrives as a message and wakes you. Not your own.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=None,
    touches=(),
    summary=lambda input: f"{'' if input.subscribe else 'no longer '}{input.pattern}",
)
