"""The tool async_task_result: the result of a background subagent."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task_id: str = Field(min_length=1, max_length=64, description="From async_task.")
    offset: int = Field(default=0, ge=0, description="Where to continue in a long result, as its end says.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.result(context.ref, input.task_id, context.key, input.offset)
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="async_task_result",
    description="The result of a background subagent, or that it still runs. Prefer gather to asking again and again.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=None,
    delegates=True,
    polls=True,
    summary=lambda input: input.task_id,
)
