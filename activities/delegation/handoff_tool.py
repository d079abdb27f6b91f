"""Handoff tools: one for each agent that may take over the thread, named after it."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import HAND_OVER, Tool
from domain.agents.definition import AgentDefinition
from domain.sessions.step import Effect, preview


class HandoffArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    message: str = Field("", max_length=100_000, description="What it should know beside the conversation so far.")


def can_take_over(agent: AgentDefinition) -> bool:
    return agent.expose_as_tool and not agent.dual


def handoff_tool(agent: AgentDefinition) -> Tool:
    return Tool(
        name=agent.name,
        description=(
            f"Hand this conversation over to the agent {agent.name}, which then answers in your place and sees "
            f"everything that was said. {agent.tool_description or agent.description}"
        ).strip(),
        input=HandoffArguments,
        activity=HAND_OVER,
        effect=Effect.IDEMPOTENT,
        kind=None,
        touches=(),
        summary=lambda input: preview(input.message, 120) or f"hand over to {agent.name}",
    )
