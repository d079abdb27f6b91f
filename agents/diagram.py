"""A Mermaid diagram of agents: their sides, and which agent hands over to, starts or delegates to which."""

import re
from collections.abc import Iterator, Mapping

from domain.agents.definition import AgentDefinition, Equipment, Side, SideKind


def mermaid(agents: Mapping[str, AgentDefinition], root: str | None = None) -> str:
    """The whole graph, or the part that can be reached from one agent."""
    shown = _reachable(agents, root) if root is not None else list(agents)
    lines = ["flowchart LR"]
    for name in shown:
        agent = agents[name]
        label = f"{name}<br/>{_sides(agent)}"
        lines.append(f'    {_id(name)}["{label}"]')
    for name in shown:
        lines += [
            f"    {_id(name)} {arrow} {_id(target)}" for target, arrow in _edges(agents[name]) if target in agents
        ]
    return "\n".join(lines) + "\n"


def _sides(agent: AgentDefinition) -> str:
    a, b = agent.side("a"), agent.side("b")
    return f"{_who(a)} ⇄ {_who(b)}"


def _who(side: Side) -> str:
    if side.label:
        return _escape(side.label)
    return {SideKind.HUMAN: "people", SideKind.HANDLER: f"code {side.handler}"}.get(side.kind, "model")


def _edges(agent: AgentDefinition) -> Iterator[tuple[str, str]]:
    views: list[Equipment] = [agent, *agent.prompts.values()]
    for view in views:
        yield from ((name, "== handoff ==>") for name in view.handoffs)
        for tool in view.subagent_tools:
            traits = ["blocking" if tool.blocking else "background"]
            traits += ["resumable"] if tool.resumable else []
            traits += ["immediate"] if tool.immediate else []
            yield tool.name, f"-- {', '.join(traits)} -->"
        yield from ((reference.agent, "-. delegates .->") for reference in view.subagents)


def _reachable(agents: Mapping[str, AgentDefinition], root: str) -> list[str]:
    found, waiting = [], [root]
    while waiting:
        name = waiting.pop(0)
        if name in found or name not in agents:
            continue
        found.append(name)
        waiting += [target for target, _ in _edges(agents[name])]
    return found


def _id(name: str) -> str:
    return "agent_" + re.sub(r"[^a-z0-9]", "_", name)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
