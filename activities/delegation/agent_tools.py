"""Tools made from agents: the subagents that a prompt configures, and the agents that may take over its thread."""

import json
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field

from activities.requests.external_tools import Arguments, CallersTool
from activities.tools.builtin.agents import SUBAGENT_CREATE, SUBAGENT_MESSAGE, SUBAGENT_TERMINATE
from activities.tools.tool import BEGIN_DELEGATIONS, HAND_OVER, Tool
from domain.agents.definition import AgentDefinition, SubagentTool
from domain.agents.variables import resolve_values
from domain.conversations.subagent_texts import roster
from domain.conversations.subagents import DEFAULT_SCHEMA, is_enabled
from domain.sessions.session import Effect, EffectKind, preview

CREATE = SUBAGENT_CREATE.name
MESSAGE = SUBAGENT_MESSAGE.name


# One tool for each subagent that is not resumable, and those that create instances of the others, send them messages
# and terminate them.


def can_be_subagent(agent: AgentDefinition) -> bool:
    return agent.dual and agent.expose_as_tool


def find_enabled(agent: AgentDefinition, variables: dict[str, str]) -> list[SubagentTool]:
    """The subagents that the agent may start now."""
    return [one for one in agent.subagent_tools if is_enabled(one, resolve_values(agent, variables))]


def description_of(agent: AgentDefinition) -> str:
    return agent.tool_description or agent.description


def make_subagent_tool(agent: AgentDefinition, blocking: bool) -> Tool:
    waits = "You get its result." if blocking else "It works on its own, and its result is sent to you later."
    return CallersTool(
        name=agent.name,
        description=f"{description_of(agent)} This starts the subagent {agent.name}. {waits}".strip(),
        input=Arguments,
        activity=BEGIN_DELEGATIONS,
        effect=Effect.IDEMPOTENT,
        kind=EffectKind.SUBAGENT,
        starts=True,
        touches=(),
        summary=lambda arguments: preview(json.dumps(arguments.model_dump(), ensure_ascii=False), 120),
        schema=agent.input_schema or DEFAULT_SCHEMA,
    )


def make_instance_tools(agents: list[AgentDefinition]) -> list[Tool]:
    entries = []
    for agent in agents:
        needs = f" Arguments: {json.dumps(agent.input_schema)}" if agent.input_schema else ""
        entries.append((agent.name, description_of(agent) + needs))
    create = SUBAGENT_CREATE
    return [
        replace(create, description=create.description + roster(entries)),
        SUBAGENT_MESSAGE,
        SUBAGENT_TERMINATE,
    ]


# Handoffs: a tool for each agent that may take over, named after it.


class HandoffArguments(BaseModel):
    model_config = ConfigDict(extra="forbid")

    message: str = Field("", max_length=100_000, description="What it should know beside the conversation so far.")


def can_take_over(agent: AgentDefinition) -> bool:
    return agent.expose_as_tool and not agent.dual


def make_handoff_tool(agent: AgentDefinition) -> Tool:
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
