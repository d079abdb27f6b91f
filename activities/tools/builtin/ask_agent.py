"""The tool ask_agent: a message to another agent, and its reply."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect

LONGEST_S = 600


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    agent_id: str = Field(min_length=1, max_length=64, description="Its id; not your own.")
    prompt: str = Field(min_length=1, max_length=100_000, pattern=r"\S", description="What you want to know.")
    timeout_s: float = Field(120, ge=1, le=LONGEST_S, description="How long to wait for the reply.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    text, failed = await context.subagents.messages.ask(
        context.ref, input.agent_id, input.prompt, context.key, input.timeout_s
    )
    return ToolResult(text, failed=failed)


TOOL = Tool(
    name="ask_agent",
    description="Ask another agent something and wait for its reply.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    touches=(),
    timeout_s=LONGEST_S + 20,
    summary=lambda input: f"{input.agent_id}: {input.prompt}",
)
