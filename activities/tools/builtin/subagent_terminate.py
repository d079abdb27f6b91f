"""The tool subagent_terminate: end an instance of a subagent permanently."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    target: str = Field(min_length=1, max_length=64, description="The instance: its reference or its name.")
    reason: str = Field("", max_length=500, description="Why it is no longer needed.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.terminate(context.ref, input.target, input.reason)
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="subagent_terminate",
    description="End an instance of a subagent permanently: its work is stopped, and it accepts no more messages.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    addresses=True,
    touches=(),
    summary=lambda input: f"{input.target}: {input.reason}" if input.reason else input.target,
)
