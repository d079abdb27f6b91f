"""The tool steer_subagent: a further message to a running subagent."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(min_length=1, max_length=64, description="Session id of the subagent.")
    message: str = Field(min_length=1, max_length=100_000, description="What it should know or do as well.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    if not input.message.strip():
        return ToolResult("The message is empty; nothing was sent.", failed=True)
    text, failed = await context.subagents.steer(context.ref, input.task_id, input.message, context.key)
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="steer_subagent",
    description="Send a message to a running subagent; it reads it before its next step and continues with it.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    delegates=True,
    summary=lambda input: f"{input.task_id}: {input.message}",
)
