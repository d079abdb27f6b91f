"""Tools made from the subagents that a prompt configures: one for each that is not resumable, and those that create
instances of the others, send them messages and terminate them."""

import json
from dataclasses import replace

from activities.requests.external_tools import Arguments, CallersTool
from activities.tools.builtin.agents import SUBAGENT_CREATE, SUBAGENT_MESSAGE, SUBAGENT_TERMINATE
from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.agents.definition import AgentDefinition
from domain.agents.subagent_tool import SubagentTool
from domain.agents.variable_scope import resolved
from domain.conversations.subagent import DEFAULT_SCHEMA, is_enabled
from domain.conversations.subagent_texts import roster
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect, preview

CREATE = SUBAGENT_CREATE.name
MESSAGE = SUBAGENT_MESSAGE.name


def can_be_subagent(agent: AgentDefinition) -> bool:
    return agent.dual and agent.expose_as_tool


def enabled(agent: AgentDefinition, variables: dict[str, str]) -> list[SubagentTool]:
    """The subagents that the agent may start now."""
    return [one for one in agent.subagent_tools if is_enabled(one, resolved(agent, variables))]


def description_of(agent: AgentDefinition) -> str:
    return agent.tool_description or agent.description


def subagent_tool(agent: AgentDefinition, blocking: bool) -> Tool:
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


def instance_tools(agents: list[AgentDefinition]) -> list[Tool]:
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
