"""Which values a thread has, which threads inherit them, and which values a graph still needs."""

import time
from typing import Any

from domain.agents.definition import AgentDefinition
from domain.agents.variables import (
    find_needed,
    inherit_values,
    store_given,
    tool_values,
)

KEY = {"description": "a key", "kind": "secret", "scoped": True}
NOTE = {"description": "a note", "scoped": True}
TOWN = {"description": "a town"}


def agent(name: str, *below: Any, **more: Any) -> AgentDefinition:
    tools = [one if isinstance(one, dict) else {"name": one} for one in below]
    return AgentDefinition.model_validate({"name": name, "prompt": "x", "subagent_tools": tools, **more})


DEEP = agent("deep", variables={"KEY": KEY, "TOWN": TOWN})
MIDDLE = agent("middle", {"name": "deep", "scoped_env": ["KEY"]}, variables={"NOTE": NOTE}, env={"TOWN": "Oslo"})
TOP = agent("top", "middle", variables={"NOTE": {**NOTE, "required": False}, "TOWN": {**TOWN, "required": False}})
GRAPH = {one.name: one for one in (TOP, MIDDLE, DEEP)}


def missing(*given: Any) -> list[tuple[str, str]]:
    return [(one.agent, one.name) for one in find_needed(*given) if one.missing]


def test_given_values_wait_for_the_agent_that_needs_them() -> None:
    needs = find_needed(MIDDLE, {}, GRAPH)
    held = store_given("middle", needs, {"NOTE": "n", "KEY": "k", "TOWN": "Rome"})
    assert held == {"NOTE": "n", "deep:KEY": "k", "deep:TOWN": "Rome"}
    assert missing(MIDDLE, held, GRAPH) == []
    assert inherit_values(held, [MIDDLE], DEEP) == {"KEY": "k", "TOWN": "Rome"}
    assert tool_values(MIDDLE, held) == {"NOTE": "n"}


def test_many_ways_through_a_graph_are_not_all_walked() -> None:
    names = [[f"a{layer}-{place}" for place in range(10)] for layer in range(20)]
    graph = {}
    for layer, below in zip(names, [*names[1:], []], strict=True):
        for place, name in enumerate(layer):
            own = {"TOWN": TOWN, f"V_{name[1:].replace('-', '_')}": {**NOTE, "required": False}}
            graph[name] = agent(name, *below, variables=own, env={"OTHER": str(place)})
    known = [name for one in graph.values() for name in one.variables if name != "TOWN"]
    given = dict.fromkeys(known[::2], "x")  # more than one task can supply
    began = time.process_time()
    assert {name for name, _ in missing(graph["a0-0"], given, graph)} == {"a0-0", *sum(names[1:], [])}
    assert time.process_time() - began < 3  # walking each path separately would practically never end
