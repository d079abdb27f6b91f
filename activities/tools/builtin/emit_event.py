"""The tool emit_event: reports an event to the agents that wait for it or subscribed to it."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect
from domain.triggers import EVENT_NAME, MAX_CHARS


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=MAX_CHARS, pattern=EVENT_NAME, description="Parts with colons: build:42:done.")
    data: dict[str, Any] = Field(default_factory=dict, description="What the others need to know about it.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.events.emit(context.ref, input.name, input.data, context.key)
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="emit_event",
    description="Report that something happened to the agents that wait for it or subscribed to it; not to yourself.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    touches=(),
    summary=lambda input: input.name,
)
