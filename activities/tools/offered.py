"""The toolbox: which tools a line is offered, and the words in which they are described to it."""

import time
from typing import Any

from activities.requests.external_tools import callers_tool
from activities.tools.tool import Tool
from domain.agents.definition import AgentDefinition, Mode
from domain.conversations.subagent_texts import roster
from domain.policy.rules import STARTERS, Action, Rule, decide, possible, tools_of
from domain.sessions.step import ModelCall
from store import agents
from store.database import Pool
from store.messages import StepFacts

Offered = dict[str, tuple[Tool, dict[str, Any]]]  # name -> the tool and its definition for the model API
ROSTER_SECONDS = 30.0
ASK_USER = "ask_user"


class Toolbox:
    def __init__(self, pool: Pool, tools: dict[str, Tool]) -> None:
        self._pool = pool
        self._tools = tools
        self._rosters: dict[tuple[str, str], tuple[float, str]] = {}

    async def offered(
        self, call: ModelCall, agents: list[AgentDefinition], layers: list[list[Rule]], facts: StepFacts
    ) -> Offered:
        """`agents`: from the session's own to the line's. An inline line asks nobody outside."""
        agent = agents[-1]
        names = [name for name in line_tools(agents, facts.tools) if name != ASK_USER]
        if call.line == "main":
            names += [ASK_USER] if facts.may_ask and agent.may_ask else []
            names += ["update_plan"] if facts.approval_required and "update_plan" not in names else []
        names = [name for name in names if all(possible(rules, name) for rules in layers)]
        offered: Offered = {}
        for name in names:
            tool = self._tools.get(name)
            if tool is None:
                continue
            definition = tool.definition()
            if name in STARTERS:
                definition["description"] += await self._roster(call.ref.tenant, agent)
            offered[name] = (tool, definition)
        if call.line == "main":
            for declared in facts.external_tools:
                if declared.name not in self._tools and all(possible(rules, declared.name) for rules in layers):
                    tool = callers_tool(declared)
                    offered[declared.name] = (tool, tool.definition())
        return offered

    async def _roster(self, tenant: str, agent: AgentDefinition) -> str:
        key = (tenant, agent.name)
        known = self._rosters.get(key)
        if known is None or time.monotonic() - known[0] > ROSTER_SECONDS:
            entries = []
            for reference in agent.subagents:
                found = await agents.current(self._pool, tenant, reference.agent)
                if found and found[1].mode is not Mode.PRIMARY and self._permitted(agent, reference.agent):
                    entries.append((reference.agent, found[1].description))
            known = (time.monotonic(), roster(entries))
            self._rosters[key] = known
        return known[1]

    @staticmethod
    def _permitted(agent: AgentDefinition, name: str) -> bool:
        return any(decide(agent.permissions, door, name) is not Action.DENY for door in STARTERS)


def line_tools(agents: list[AgentDefinition], granted: list[str] | None) -> list[str]:
    """What the last of these may use: each has at most what the one before it has, the first what it was granted."""
    first, *inner = agents
    own = tools_of(first.tools, first.permissions, delegates=bool(first.subagents))
    names = own if granted is None else granted
    for agent in inner:
        names = tools_of(agent.tools, agent.permissions, delegates=bool(agent.subagents), parent_tools=names)
    return names
