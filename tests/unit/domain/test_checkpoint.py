"""A checkpoint has all headings, whatever the model wrote."""

from domain.messages import CHECKPOINT_CHILDREN, CHECKPOINT_HEADINGS, NOTHING_NOTED, fill_checkpoint

FULL = "\n\n".join(f"## {heading}\nSomething." for heading in CHECKPOINT_HEADINGS)


def test_checkpoint_with_all_headings_is_kept_and_gains_the_children_that_run() -> None:
    assert fill_checkpoint(FULL, ["ann (session: x)"]) == f"{FULL}\n\n## {CHECKPOINT_CHILDREN}\n- ann (session: x)"
    assert fill_checkpoint(FULL, []).endswith(f"## {CHECKPOINT_CHILDREN}\n(none)")


def test_missing_headings_are_added_and_other_spellings_of_them_count() -> None:
    shown = fill_checkpoint("Goal: tea.\n**Done** - water boiled.\n", [])
    assert shown.startswith("Goal: tea.\n**Done** - water boiled.\n\n## Constraints\n" + NOTHING_NOTED)
    assert "## Goal" not in shown and "## Done" not in shown
    assert [heading for heading in ("Open", "Decisions", "Next") if f"## {heading}\n{NOTHING_NOTED}" not in shown] == []
