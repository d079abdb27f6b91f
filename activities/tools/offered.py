"""The toolbox: the tools that a line is offered, and their descriptions for the model."""

import json
from dataclasses import dataclass, replace

from pydantic import Field

from activities.mcp.mcp_tool import find_mcp, mcp_tools
from activities.requests.external_tools import CallersTool, make_callers_tool
from activities.tools.builtin.agents import (
    NOTIFY_PARENT,
    SET_STATUS,
    SUBAGENT_CREATE,
    SUBAGENT_MESSAGE,
    SUBAGENT_TERMINATE,
)
from activities.tools.declared_tools import make_declared_tool
from activities.tools.tool import BEGIN_DELEGATIONS, HAND_OVER, Tool, ToolInput
from domain.agents.definition import AgentDefinition, Mode, SubagentTool, list_pinned_tools
from domain.agents.variables import resolve_values
from domain.conversations.subagents import DEFAULT_SCHEMA, is_enabled
from domain.messages import Node, ToolDefinition
from domain.policy.rules import Action, Rule, decide, is_possible, tools_of, verdict
from domain.sessions.session import Effect, EffectKind, ModelCall, SideName, preview
from domain.skills import LOAD_SKILL
from store import agents
from store.database import Pool
from store.messages import StepFacts

CREATE = SUBAGENT_CREATE.name
MESSAGE = SUBAGENT_MESSAGE.name
Offered = dict[str, tuple[Tool, ToolDefinition]]  # by name


@dataclass(frozen=True)
class ReplyPrompt:
    """What a model, or whatever replies in its place, is given for a reply."""

    call: ModelCall
    agent: AgentDefinition
    nodes: list[Node]
    tools: Offered
    facts: StepFacts


class Toolbox:
    def __init__(self, pool: Pool, tools: dict[str, Tool]) -> None:
        self._pool = pool
        self.tools = tools

    async def offer_tools(
        self, call: ModelCall, agents: list[AgentDefinition], layers: list[list[Rule]], facts: StepFacts
    ) -> Offered:
        """`agents`: from the session's own to the line's. An inline line cannot ask anybody outside."""
        agent = agents[-1]
        names = line_tools(self.tools, agents, facts.tools)
        found = [tool for name in names if (tool := self.tools.get(name)) and not tool.asks]
        found += [make_declared_tool(one, agent.side(call.agent.side)) for one in agent.declared_tools]
        if agent.mcp_servers:
            found += mcp_tools(agent, names)
        if agent.subagent_tools:
            found += await self._subagents(call, agent, facts)
        if call.line == "main":
            if facts.subagent is not None and facts.subagent.explicit:  # it reports for itself
                found += [NOTIFY_PARENT, SET_STATUS]
            if facts.may_ask and agent.may_ask:
                found += [tool for tool in self.tools.values() if tool.asks]
            if facts.approval_required:
                found += [tool for tool in self.tools.values() if tool.plans and tool not in found]
            if agent.handoffs:
                current = [await self._current(call.ref.tenant, name) for name in agent.handoffs]
                found += [make_handoff_tool(one) for one in current if one is not None and can_take_over(one)]
            if facts.external_tools:
                found = self._with_brought(found, facts)
        offered: Offered = {}
        subagents = ""
        for tool in found:
            if all(is_possible(rules, tool) for rules in layers) and not _is_denied_for_good(tool, layers):
                definition = tool.definition
                if tool.starts and tool.delegates:
                    subagents = subagents or await self._roster(call.ref.tenant, agent)
                    definition = replace(definition, description=definition.description + subagents)
                elif agent.skills and tool.name == LOAD_SKILL:
                    lines = [f"\n- {name}: {skill.description}" for name, skill in agent.skills.items()]
                    known = "\n\nYour own skills:" + "".join(lines)
                    definition = replace(definition, description=definition.description + known)
                offered[tool.name] = (tool, definition)
        return offered

    def _with_brought(self, found: list[Tool], facts: StepFacts) -> list[Tool]:
        """The tools with those that the caller brought: of two with the same name the caller's, except that the agent's
        own parts keep theirs (one that took over may have other parts), and so does the tool of a plan to approve."""
        brought = {one.name: make_callers_tool(one) for one in facts.external_tools}
        needed = {tool.name for tool in found if tool.plans and facts.approval_required}
        replaced = (brought.keys() & self.tools.keys()) - needed
        found = [tool for tool in found if tool.name not in replaced]
        taken = {tool.name for tool in found}
        return found + [tool for name, tool in brought.items() if name not in taken]

    async def immediate(self, call: ModelCall, agent: AgentDefinition, facts: StepFacts) -> Offered:
        """The subagent tools that start with the prompt, whether or not a model is offered them."""
        found: dict[str, Tool] = {}
        for one in find_enabled(agent, facts.variables):
            child = await self._current(call.ref.tenant, one.name) if one.immediate else None
            if child is not None and can_be_subagent(child):
                tool = make_instance_tools([child])[0] if one.resumable else make_subagent_tool(child, one.blocking)
                found[tool.name] = tool
        return {name: (tool, tool.definition) for name, tool in found.items()}

    async def find_own(self, tenant: str, agent: AgentDefinition, side: SideName, name: str) -> Tool | None:
        """The agent's own tool of this name, which is not one of the platform's; None if it has none any more."""
        for given in agent.declared_tools:
            if given.name == name:
                return make_declared_tool(given, agent.side(side))
        if (remote := find_mcp(agent, name)) is not None:
            return remote
        child = await self._current(tenant, name)
        if child is None:
            return None
        for one in agent.subagent_tools:
            if one.name == name:
                return make_subagent_tool(child, one.blocking)
        return make_handoff_tool(child) if name in agent.handoffs else None

    async def _subagents(self, call: ModelCall, agent: AgentDefinition, facts: StepFacts) -> list[Tool]:
        """The subagent tools of the prompt. Instances belong to the thread, so an inline line has none."""
        found: list[Tool] = []
        persistent: list[AgentDefinition] = []
        for one in find_enabled(agent, facts.variables):
            child = None if one.hidden else await self._current(call.ref.tenant, one.name)
            if child is None or not can_be_subagent(child):
                continue
            if one.resumable is None:
                found.append(make_subagent_tool(child, one.blocking))
            else:
                persistent.append(child)
        if persistent and call.line == "main":
            found += make_instance_tools(persistent)
        return found

    async def _current(self, tenant: str, name: str) -> AgentDefinition | None:
        found = await agents.find_current(self._pool, tenant, name)
        return found[1] if found else None

    async def _roster(self, tenant: str, agent: AgentDefinition) -> str:
        starters, entries = [tool for tool in self.tools.values() if tool.starts], []
        for reference in agent.subagents:
            child = await self._current(tenant, reference.agent)
            allowed = any(decide(agent.permissions, tool, reference.agent) is not Action.DENY for tool in starters)
            if child is not None and child.mode is not Mode.PRIMARY and allowed:
                entries.append((reference.agent, child.description))
        return roster(entries)


def _is_denied_for_good(tool: Tool, layers: list[list[Rule]]) -> bool:
    """Whether the rules deny a tool for the only subject that it can be used on."""
    fixed = tool.subject.fixed if tool.subject else None
    return fixed is not None and verdict(layers, tool, [fixed]).action is Action.DENY


def line_tools(tools: dict[str, Tool], agents: list[AgentDefinition], granted: list[str] | None) -> list[str]:
    """The tools of the last of these agents, which is the session's own or works inline below it. `granted`: those of
    the session, if it is a subagent's; tools granted to two sides are for both, and each side has its own part."""
    agent = agents[-1]
    if len(agents) > 1:
        return _own_tools(tools, agent, subagent=True)
    return [name for name in _own_tools(tools, agent) if granted is None or name in granted]


def subagent_tools(tools: dict[str, Tool], agent: AgentDefinition) -> list[str]:
    """The tools of all sides of a subagent. They are those of its own definition: what it inherits are bounds, which
    the rules of its session hold, and no tools."""
    return list(dict.fromkeys(name for view in agent.views for name in _own_tools(tools, view, subagent=True)))


def _own_tools(tools: dict[str, Tool], agent: AgentDefinition, *, subagent: bool = False) -> list[str]:
    listed = [*agent.tools, *(name for name, *_ in list_pinned_tools(agent.mcp_servers))]
    return tools_of(tools, listed, agent.permissions, delegates=bool(agent.subagents), subagent=subagent)


def roster(entries: list[tuple[str, str]]) -> str:
    """The list of subagents that is appended to a delegation tool's description."""
    return "\n\nAvailable subagents:\n" + "\n".join(f"- {name}: {description}" for name, description in entries)


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
        activity=BEGIN_DELEGATIONS,
        effect=Effect.IDEMPOTENT,
        kind=EffectKind.SUBAGENT,
        starts=True,
        touches=(),
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


class HandoffArguments(ToolInput):
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
