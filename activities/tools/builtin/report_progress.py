"""The tool report_progress: one line for watchers."""

from pydantic import Field

from activities.tools.tool import Tool, ToolContext, ToolInput, ToolResult, clean
from domain.events import Progress
from domain.sessions.session import Effect, preview


class Input(ToolInput):
    message: str = Field(min_length=1, max_length=500, description="What was found or reached, in one sentence.")
    percent: int | None = Field(None, ge=0, le=100, description="How much of the whole task is done.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    message = " ".join(clean(input.message).split())
    if not message:
        return ToolResult("The message has no visible text.", failed=True)
    if input.percent is not None:
        message = f"{message} ({input.percent} %)"
    return ToolResult("Reported.", events=[Progress(message=message)], progress=message)


TOOL = Tool(
    name="report_progress",
    description="Tell the caller how far you are, in one sentence, when something worth knowing was reached.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    bookkeeping=True,
    talks=True,
    has_own_event=True,
    kind=None,
    summary=lambda input: preview(input.message, 120),
)
