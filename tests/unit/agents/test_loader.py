"""Agent files: which are read, which are refused, and with which messages."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from activities.handlers.registry import HANDLERS
from activities.tools.registry import TOOLS
from activities.tools.rules import judge_call
from agents.loader import check_agents, load_agent, read_agent
from agents.problems import AgentFileError, Catalogue
from domain.agents.definition import AgentLimits, Mode
from domain.policy.rules import Action
from settings import ROOT

FOLDER = ROOT / "agents"
KNOWN = Catalogue(TOOLS, HANDLERS)


def agent_text(extra: str = "", name: str = "helper", prompt: str = "Help.") -> str:
    return f"---\nname: {name}\ndescription: Helps.\n{extra}---\n\n{prompt}\n"


def problems(text: str, file: str = "helper.md") -> dict[str, Any]:
    with pytest.raises(AgentFileError) as caught:
        load_agent(text, [], file, KNOWN, {})
    assert caught.value.file == file
    assert file in str(caught.value)
    return {problem.field: problem for problem in caught.value.problems}


def test_the_shipped_agents_load() -> None:
    loaded = check_agents(FOLDER, KNOWN)
    assert loaded.errors == []
    agents = loaded.agents
    desk = {"support-desk", "billing", "technician", "asset_subagent"}
    desk |= {"panel", "optimist", "sceptic", "pragmatist"}
    daemons = {"mender", "concierge", "scout", "coder"}
    assert set(agents) == {"assistant", "researcher", "code-reviewer", "orchestrator"} | desk | daemons
    assert agents["orchestrator"].mode is Mode.PRIMARY
    assert [ref.agent for ref in agents["orchestrator"].subagents] == ["researcher", "code-reviewer"]
    assert agents["code-reviewer"].input_schema is not None
    assert all(agents[name].input_schema is None for name in ("assistant", "researcher", "orchestrator"))
    assert "bash" not in agents["researcher"].tools
    # people with another vendor's key would have a model without a price among them
    assert not any(one.model or one.fallback_models for one in agents.values())
    assert [name for name, agent in agents.items() if agent.may_ask] == ["assistant", "coder"]


def test_the_coder_asks_before_it_pushes_from_any_folder() -> None:
    rules = [check_agents(FOLDER, KNOWN).agents["coder"].permissions]
    asked = {
        command: judge_call(TOOLS["bash"], {"command": command}, rules).action
        for command in ("git push", "cd web && git push -q", "git -C web push", "git -C web status", "git diff")
    }
    asks = {command for command, action in asked.items() if action is Action.ASK}
    assert asks == {"git push", "cd web && git push -q", "git -C web push"}


@pytest.mark.parametrize("text", ["", "---\nname: helper\n"])
def test_a_file_without_front_matter_is_refused(text: str) -> None:
    assert "---" in problems(text)["(front matter)"].message


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("tools: [bash\n", "not valid YAML"),
        ("mode: all\nmode: all\n", "'mode' is repeated"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("tools: !!python/object:os.system {}\n", "not valid YAML"),
    ],
)
def test_unsafe_or_broken_yaml_is_refused(extra: str, expected: str) -> None:
    assert expected in problems(agent_text(extra))["(front matter)"].message


@pytest.mark.parametrize("extra", ["x: [" + "1, " * 60_000 + "1]\n", "".join(f"k{n}: 1\n" for n in range(20_000))])
def test_front_matter_with_too_many_values_is_refused_soon(extra: str) -> None:
    begun = time.process_time()
    assert "20,000 keys and values" in problems(agent_text(extra))["(front matter)"].message
    assert time.process_time() - begun < 1


def test_an_unknown_field_names_the_known_ones() -> None:
    found = problems(agent_text("colour: red\nlimits: {stepz: 3}\n"))
    assert "unknown" in found["colour"].message and {"mode", "tools", "limits"} <= set(found["colour"].allowed)
    assert found["limits.stepz"].allowed == tuple(AgentLimits.model_fields)


@pytest.mark.parametrize(
    ("schema", "field", "expected"),
    [
        ({"properties": {"a": {"$ref": "https://example.com/s.json"}}}, "input_schema.properties.a.$ref", "outside"),
        ({"$ref": "#"}, "input_schema", "without end"),
        ({"type": "string", "pattern": "("}, "input_schema.pattern", "RE2"),
    ],
)
def test_an_unusable_input_schema_is_refused(schema: dict[str, Any], field: str, expected: str) -> None:
    found = problems(agent_text(f"input_schema: {json.dumps(schema)}\n"))
    assert expected in found[field].message


@pytest.mark.parametrize(("subagent", "expected"), [("nobody", "no agent 'nobody'"), ("helper", "mode primary")])
def test_an_unknown_or_primary_subagent_is_refused(tmp_path: Path, subagent: str, expected: str) -> None:
    (tmp_path / "helper.md").write_text(agent_text(f"mode: primary\nsubagents: [{subagent}]\n"))
    (tmp_path / "worker.md").write_text(agent_text(name="worker"))
    [error] = check_agents(tmp_path, KNOWN).errors
    assert expected in str(error) and error.problems[0].allowed == ("worker",)


def test_rule_names_an_agent_among_the_tools_or_handoffs() -> None:
    rules = "permissions:\n" + "".join(f"  - {{permission: {one}, action: ask}}\n" for one in ("scout", "billing"))
    extras = dict.fromkeys(("scout", "billing"), "expose_as_tool: true\n")
    others = {name: read_agent(agent_text(extra, name), f"{name}.md", KNOWN)[0] for name, extra in extras.items()}
    text = agent_text(f"tools: [read_file, scout]\nhandoffs: [billing]\n{rules}")
    assert len(load_agent(text, [], "helper.md", KNOWN, others).permissions) == 2
    assert set(problems(agent_text(rules))) == {"permissions.0.permission", "permissions.1.permission"}
