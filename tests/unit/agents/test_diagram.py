"""The Mermaid diagram of agents: sides, handoffs, subagents and delegation."""

from agents.diagram import mermaid
from domain.agents.definition import AgentDefinition, PromptDefinition, Resumable, Side, SubagentRef, SubagentTool

REVIEWER = PromptDefinition(name="reviewer", text="Review.")
MAKER = AgentDefinition(
    name="asset_maker",
    prompt="Make.",
    side_a=Side(label='Worker "1"'),
    side_b=Side(prompt="reviewer"),
    prompts={"reviewer": REVIEWER},
)
AGENTS = {
    "desk": AgentDefinition(
        name="desk",
        prompt="Help.",
        handoffs=["billing"],
        subagents=[SubagentRef(agent="researcher")],
        subagent_tools=[SubagentTool(name="asset_maker", blocking=False, resumable=Resumable())],
    ),
    "billing": AgentDefinition(name="billing", prompt="Bill."),
    "researcher": AgentDefinition(name="researcher", prompt="Look."),
    "asset_maker": MAKER,
}


def test_diagram_shows_sides_and_every_kind_of_edge() -> None:
    assert mermaid(AGENTS).splitlines() == [
        "flowchart LR",
        '    agent_desk["desk<br/>model ⇄ people"]',
        '    agent_billing["billing<br/>model ⇄ people"]',
        '    agent_researcher["researcher<br/>model ⇄ people"]',
        '    agent_asset_maker["asset_maker<br/>Worker &quot;1&quot; ⇄ model"]',
        "    agent_desk == handoff ==> agent_billing",
        "    agent_desk -- background, resumable --> agent_asset_maker",
        "    agent_desk -. delegates .-> agent_researcher",
    ]


def test_diagram_of_one_agent_shows_only_what_it_reaches() -> None:
    assert "agent_desk" not in mermaid(AGENTS, "asset_maker")
    assert "agent_billing" in mermaid(AGENTS, "desk")
