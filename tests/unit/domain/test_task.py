"""Tasks: the opening text that the agent reads, and the title."""

from hypothesis import given
from hypothesis import strategies as st

from domain.task import TaskSpec, opening, title_of


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


@given(st.text(min_size=1, max_size=400).filter(str.strip))
def test_a_title_is_one_short_line(text: str) -> None:
    flat = " ".join(text.split())
    title = title_of(TaskSpec(agent="a", input=text))
    assert title == flat if len(flat) <= 120 else title == flat[:119] + "…"
