"""Tasks: the opening text that the agent reads, and the title."""

import json

from hypothesis import given
from hypothesis import strategies as st

from domain.task import TaskSpec, opening, title_of

LINES = st.text(min_size=1, max_size=30)
TEXTS = st.text(min_size=1, max_size=400).filter(str.strip)  # a text of white space only is refused, see below
INPUTS = TEXTS | st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3)


@st.composite
def specs(draw: st.DrawFn) -> TaskSpec:
    return TaskSpec.model_validate(
        {
            "agent": "assistant",
            "input": draw(INPUTS),
            "title": draw(st.none() | st.text(min_size=1, max_size=200)),
            "acceptance_criteria": draw(st.lists(LINES, max_size=3)),
            "constraints": draw(st.lists(LINES, max_size=3)),
            "context": {
                "notes": draw(st.lists(LINES, max_size=3)),
                "environment": draw(st.dictionaries(LINES, LINES, max_size=2)),
            },
        }
    )


@given(specs(), st.lists(LINES, max_size=3))
def test_the_opening_leaves_nothing_out(spec: TaskSpec, files: list[str]) -> None:
    text = opening(spec, files)
    body = spec.input if isinstance(spec.input, str) else json.dumps(spec.input, indent=2)
    assert text.startswith(body) or text.startswith(f"```json\n{body}\n```")
    for line in (*spec.acceptance_criteria, *spec.constraints, *spec.context.notes, *files):
        assert f"- {line}" in text
    for key, value in spec.context.environment.items():
        assert f"- {key}: {value}" in text


def test_plain_task_opens_with_its_own_text_only() -> None:
    assert opening(TaskSpec(agent="assistant", input="Do it."), []) == "Do it."


def test_parts_follow_under_headings_in_a_fixed_order() -> None:
    spec = TaskSpec.model_validate(
        {
            "agent": "a",
            "input": {"q": 1},
            "acceptance_criteria": ["tested"],
            "constraints": ["no network"],
            "context": {"notes": ["a note"], "environment": {"os": "linux"}},
        }
    )
    assert opening(spec, ["a.txt"]) == (
        '```json\n{\n  "q": 1\n}\n```\n\nThe task is done when:\n- tested\n\nYou must not violate:\n- no network\n\n'
        "Notes:\n- a note\n\nFiles in your workspace:\n- a.txt\n\nEnvironment:\n- os: linux"
    )


@given(specs())
def test_a_title_is_one_short_line(spec: TaskSpec) -> None:
    title = title_of(spec)
    assert len(title) <= 120 and "\n" not in title
    source = spec.title or (spec.input if isinstance(spec.input, str) else json.dumps(spec.input))
    flat = " ".join(source.split())
    assert title == flat if len(flat) <= 120 else title == flat[:119] + "…"
