"""The tool send_agent_message: a message to another agent, which wakes it."""

from pydantic import BaseModel, ConfigDict, Field, model_validator

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(
        None, min_length=1, max_length=100_000, pattern=r"\S", description="What it should know or do."
    )
    message: str | None = Field(
        None, min_length=1, max_length=100_000, pattern=r"\S", description="Another name of text; give one of the two."
    )
    agent_id: str | None = Field(
        None, max_length=64, description="Its id; else your parent, else the agent that people wrote to last."
    )

    @model_validator(mode="after")
    def _has_one_text(self) -> "Input":
        if (self.text is None) == (self.message is None):
            raise ValueError("give either text or message")
        return self

    @property
    def said(self) -> str:
        return self.text or self.message or ""


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.messages.send(context.ref, input.agent_id, input.said, context.key)
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="send_agent_message",
    description="Send a message to another agent. It is marked as coming from you, and wakes the agent if it is idle.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    touches=(),
    summary=lambda input: f"{input.agent_id or 'default'}: {input.said}",
)
