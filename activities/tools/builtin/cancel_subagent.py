"""The tool cancel_subagent: stop a subagent that is no longer needed."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(min_length=1, max_length=64, description="Session id of the subagent.")
    reason: str = Field("", max_length=500, description="Why it is no longer needed.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.cancel(context.ref, input.task_id, input.reason)
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="cancel_subagent",
    description="Stop a running subagent. What it has so far is kept.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    delegates=True,
    summary=lambda input: input.task_id,
)
