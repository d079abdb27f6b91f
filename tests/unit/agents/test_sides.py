"""Agents with two sides: both versions of the standard, both spellings, and every problem of all files at once."""

from pathlib import Path
from textwrap import dedent

import pytest

from agents.loader import check_agents, load_agent, read_agent, to_markdown
from agents.problems import AgentFileError, Catalogue
from domain.agents.definition import (
    AgentDefinition,
    Binding,
    SideKind,
)

KNOWN = Catalogue(
    tools=["read_file", "write_file", "fail_asset", "approve_asset", "update_asset_status"],
    handlers=["next_speaker"],
    hooks=["log_calls", "mask"],
)
WORKER = "---\ntools: [write_file, fail_asset]\n---\n\nYou make assets.\n"
REVIEWER = "---\ntools: [read_file, approve_asset, update_asset_status]\nmodel: careful\n---\n\nYou review assets.\n"

# the example of the source text, in its own spelling
EXAMPLE = """\
---
name: asset_subagent
type: dual_ai
maxSessionTurns: 40
exposeAsTool: true
toolDescription: Generate and QA top-down game assets.
sideA:
  label: Worker
  prompt: asset_worker
  stopOnResponse: true
  sessionFail: {name: fail_asset, messageProperty: reason, attachmentsProperty: attachments}
sideB:
  label: Reviewer
  prompt: asset_reviewer
  stopOnResponse: false
  sessionStop: {name: approve_asset, messageProperty: summary, attachmentsProperty: attachments}
  sessionStatus: {name: update_asset_status, messageProperty: status}
---
"""


def folder(tmp_path: Path, **files: str) -> Path:
    """Write agent files; a name that begins with `prompt_` is a prompt."""
    (tmp_path / "prompts").mkdir()
    for name, text in files.items():
        is_prompt = name.startswith("prompt_")
        path = tmp_path / "prompts" / f"{name.removeprefix('prompt_')}.md" if is_prompt else tmp_path / f"{name}.md"
        path.write_text(dedent(text))
    return tmp_path


def short(name: str, extra: str = "") -> str:
    return f"---\nname: {name}\n{extra}---\n\nHelp.\n"


def parse(text: str, file: str) -> AgentDefinition:
    return load_agent(text, [], file, KNOWN, {})


def found_problems(tmp_path: Path, **files: str) -> dict[str, list[str]]:
    """The fields with problems, by file."""
    errors = check_agents(folder(tmp_path, **files), KNOWN).errors
    return {error.file: [problem.field for problem in error.problems] for error in errors}


@pytest.fixture
def example(tmp_path: Path) -> AgentDefinition:
    files = folder(tmp_path, asset_subagent=EXAMPLE, prompt_asset_worker=WORKER, prompt_asset_reviewer=REVIEWER)
    loaded = check_agents(files, KNOWN)
    assert loaded.errors == []
    return loaded.agents["asset_subagent"]


@pytest.mark.proves("S4-34")
def test_example_of_the_standard_loads_word_for_word(example: AgentDefinition) -> None:
    worker, reviewer = example.side("a"), example.side("b")
    assert example.dual and example.max_session_turns == 40 and example.expose_as_tool
    assert example.tool_description == "Generate and QA top-down game assets."
    assert (worker.label, worker.kind, worker.stop_on_response) == ("Worker", SideKind.PROMPT, True)
    assert worker.session_fail == Binding(
        name="fail_asset", message_property="reason", attachments_property="attachments"
    )
    assert (reviewer.label, reviewer.stop_on_response) == ("Reviewer", False)
    assert reviewer.session_stop == Binding(
        name="approve_asset", message_property="summary", attachments_property="attachments"
    )
    assert reviewer.session_status == Binding(name="update_asset_status", message_property="status")


def test_agent_with_sides_survives_being_written_and_read(example: AgentDefinition) -> None:
    assert read_agent(to_markdown(example), "asset_subagent.md", KNOWN) == (example, [])


@pytest.mark.proves("S4-02", "S4-04")  # the default agent type
def test_short_form_is_a_model_on_side_a_and_people_on_side_b() -> None:
    agent = parse(short("helper"), "helper.md")
    assert (agent.side("a").kind, agent.side("b").kind) == (SideKind.PROMPT, SideKind.HUMAN)
    assert not agent.dual and agent.for_side("a") == agent
    assert parse(short("helper", "type: ai_human\n"), "helper.md") == agent


@pytest.mark.proves("S4-03")
def test_optional_fields_have_the_defaults_of_the_standard() -> None:
    agent = parse(short("helper"), "helper.md")
    assert (agent.max_session_turns, agent.title, agent.icon, agent.expose_as_tool) == (None, None, None, False)
    assert (agent.tool_description, agent.env, agent.hooks, agent.packaging) == (None, {}, [], None)
    extra = "packageName: desk\nversion: 1.2.0\nauthor: Ann\nlicense: MIT\nenv: {REGION: eu}\nhooks: [mask]\n"
    extra += "title: Desk\ndescription: Helps.\nicon: desk.svg\nexposeAsTool: true\ntoolDescription: Ask it.\n"
    packed = parse(short("helper", extra + "maxSessionTurns: 7\n"), "helper.md")
    assert (packed.title, packed.description, packed.icon) == ("Desk", "Helps.", "desk.svg")
    assert (packed.expose_as_tool, packed.tool_description, packed.max_session_turns) == (True, "Ask it.", 7)
    assert packed.packaging is not None and packed.packaging.version == "1.2.0"
    assert (packed.env, packed.hooks) == ({"REGION": "eu"}, ["mask"])


def side_b(text: str) -> str:
    return f"---\nname: x\nside_a: {{prompt: p}}\nside_b: {text}\n---\n"


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ("---\ndescription: x\n---\n\nx\n", "name", "Field required"),
        ("---\nname: x\ntype: dual_ai\nside_a: {prompt: p}\n---\n", "side_b", "dual_ai needs it"),
        ("---\nname: x\ntype: ai_human\nside_a: {prompt: p}\nside_b: {prompt: p}\n---\n", "side_b", "has people there"),
        (side_b("{prompt: p, handler: next_speaker}"), "side_b", "has prompt and handler"),
        (side_b("{prompt: nowhere}"), "side_b.prompt", "no prompt 'nowhere'"),
        (side_b("{prompt: p, session_stop: read_file, session_fail: read_file}"), "side_b.session_fail", "same tool"),
        (
            short("x", "side_b: {prompt: p, stop_on_response: false, stopOnResponse: true}\n"),
            "side_b",
            "the same field",
        ),
        (
            short(
                "x",
                "subagent_tools: [{name: pair, immediate: {descriptionEnv: KEY}}]\n"
                "variables: {KEY: {description: A key., kind: secret}}\n",
            ),
            "subagent_tools.0.immediate.description_env",
            "is a secret",
        ),
        (
            short("x", "variables: {KEY: {description: A key., kind: secret, default: abcd}}\n"),
            "variables.KEY.default",
            "is a secret",
        ),
        (
            short("x", "variables: {TOWN: {description: A town.}}\nenv: {TOWN: 'sealed:k:x'}\n"),
            "variables.TOWN",
            "begins with 'sealed:'",
        ),
        (short("x", "handoffs: [helper]\n"), "handoffs", "does not set expose_as_tool"),
    ],
)
@pytest.mark.proves("S4-01", "S4-02", "S4-04")  # missing and superfluous fields
def test_wrong_agent_is_refused_with_its_file_field_and_reason(
    tmp_path: Path, text: str, field: str, reason: str
) -> None:
    prompt = "---\ntools: [read_file]\n---\n\nWork.\n"
    sides = "expose_as_tool: true\nside_b: {prompt: p}\n"
    files = {"helper": short("helper"), "pair": short("pair", sides)}
    loaded = check_agents(folder(tmp_path, x=text, prompt_p=prompt, **files), KNOWN)
    [error] = loaded.errors
    assert error.file == "x.md" and sorted(loaded.agents) == ["helper", "pair"]
    assert any(field == one.field and reason in one.message for one in error.problems), error


def test_exposed_agent_cannot_have_the_name_of_another_tool_or_of_the_platforms_own_call(tmp_path: Path) -> None:
    files = {name: short(name, "expose_as_tool: true\n") for name in ("read_file", "attempt", "attempts")}
    assert found_problems(tmp_path, **files) == {f"{name}.md": ["expose_as_tool"] for name in ("read_file", "attempt")}


@pytest.mark.proves("S4-01")  # the name of an agent is that of its file, so names are unique
def test_all_problems_of_all_files_are_found_at_once(tmp_path: Path) -> None:
    assert found_problems(
        tmp_path,
        one=short("one", "tools: [nothing]\nhooks: [unknown]\nsubagents: [nobody]\n"),
        two="---\nname: two\ntype: dual_ai\nside_a: {prompt: gone}\n---\n",
        three=short("other"),
        prompt_bad="---\ncolour: red\n---\n\nx\n",
        fine=short("fine"),
    ) == {
        "prompts/bad.md": ["colour"],
        "one.md": ["tools", "hooks", "subagents"],
        "two.md": ["side_b", "side_a.prompt"],
        "three.md": ["name"],
    }


def test_agent_that_needs_a_broken_one_is_left_out_and_the_others_are_used(tmp_path: Path) -> None:
    loaded = check_agents(
        folder(
            tmp_path,
            broken=short("broken", "tools: [nothing]\n"),
            boss=short("boss", "subagents: [broken]\n"),
            fine=short("fine"),
        ),
        KNOWN,
    )
    assert list(loaded.agents) == ["fine"]
    assert [error.file for error in loaded.errors] == ["broken.md"]


def test_declared_tool_serves_a_binding_and_its_arguments_are_checked() -> None:
    tool = "{name: done, description: Ends it., input_schema: {type: object, properties: {summary: {type: string}}}}"
    extra = f"declared_tools: [{tool}]\nside_a: {{session_stop: {{name: done, message_property: %s}}}}\n"
    assert parse(short("x", extra % "summary"), "x.md").side("a").session_stop is not None
    with pytest.raises(AgentFileError, match="'done' has no argument 'text'.*allowed: summary"):
        parse(short("x", extra % "text"), "x.md")


def test_wrong_value_inside_hides_nothing_and_an_unknown_field_lists_those_of_its_own_part(tmp_path: Path) -> None:
    text = """\
        ---
        name: helper
        sideA: {label: Helper, maxSteps: 0, stopToolResponseProperty: x}
        hooks: [none]
        env: {REGION: 5}
        subagentTools: [{name: nobody, blocking: maybe}]
        declaredTools: [{name: done, description: Ends it., inputSchema: {type: object}, colour: red}]
        ---

        Help.
        """
    [error] = check_agents(folder(tmp_path, helper=text), KNOWN).errors
    found = {problem.field: (problem.message, problem.allowed) for problem in error.problems}
    assert found.keys() == {
        *("side_a.max_steps", "side_a.stop_tool_response_property", "hooks", "env.REGION"),
        *("subagent_tools.0.blocking", "subagent_tools.0.name", "declared_tools.0.colour"),
    }
    assert found["declared_tools.0.colour"] == ("unknown field", ("name", "description", "input_schema"))
