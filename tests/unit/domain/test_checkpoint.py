"""A checkpoint has all headings, whatever the model wrote."""

from domain.checkpoint import CHILDREN, HEADINGS, NOTHING, REQUEST, in_form

FULL = "\n\n".join(f"## {heading}\nSomething." for heading in HEADINGS)


def test_checkpoint_with_all_headings_is_kept_and_gains_the_children_that_run() -> None:
    assert in_form(FULL, ["ann (session: x)"]) == f"{FULL}\n\n## {CHILDREN}\n- ann (session: x)"
    assert in_form(FULL, []).endswith(f"## {CHILDREN}\n(none)")


def test_missing_headings_are_added_and_other_spellings_of_them_count() -> None:
    shown = in_form("Goal: tea.\n**Done** - water boiled.\n", [])
    assert shown.startswith("Goal: tea.\n**Done** - water boiled.\n\n## Constraints\n" + NOTHING)
    assert "## Goal" not in shown and "## Done" not in shown
    assert [heading for heading in ("Open", "Decisions", "Next") if f"## {heading}\n{NOTHING}" not in shown] == []


def test_model_is_asked_for_every_heading() -> None:
    assert all(heading in REQUEST for heading in HEADINGS)
