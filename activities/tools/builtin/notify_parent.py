"""The tool notify_parent: a subagent that speaks for itself sends its parent a message."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect, preview


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    content: str = Field(min_length=1, max_length=100_000, description="What your parent should know.")
    needs_answer: bool = Field(description="Whether you need an answer in order to continue.")
    waits: bool = Field(
        default=False,
        description="Whether it may wait for your parent's next turn. Otherwise it arrives before its next step, and "
        "wakes it if it is idle.",
    )
    attachments: list[str] = Field(
        default_factory=list, max_length=20, description="Paths of files of yours that it gets a copy of."
    )


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.notify_parent(
        context.ref, input.content, input.needs_answer, context.key, input.attachments, waits=input.waits
    )
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="notify_parent",
    description="Send a message to the agent that started you. Nothing else of your work reaches it on its own.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    touches=(),
    summary=lambda input: preview(input.content, 120),
)
