"""File diffs: applying them to the old text with patch(1) gives the new text, and their size is limited."""

import random

import pytest

from activities.requests.file_diff import FileChange, diff_of
from domain.differences import CLOSELY, MOST_CHARACTERS, diff
from domain.ids import new_id
from store import workspaces
from tests.support.stack import Stack


def test_small_change_is_shown_with_context_lines() -> None:
    before = "".join(f"line {n}\n" for n in range(20))
    shown = diff("src/a.txt", before, before.replace("line 9\n", "another\n")).split("\n")
    assert shown[:2] == ["--- a/src/a.txt", "+++ b/src/a.txt"]
    assert [line for line in shown[3:] if line[0] != " "] == ["-line 9", "+another"]
    assert len(shown) == 3 + 3 + 2 + 3


def test_diff_shows_a_new_file_and_a_missing_end_of_line() -> None:
    assert diff("a", None, "one\ntwo").split("\n") == [
        *("--- /dev/null", "+++ b/a", "@@ -0,0 +1,2 @@", "+one", "+two", "\\ No newline at end of file")
    ]
    assert diff("a", "one", "one\n").split("\n")[3:] == ["-one", "\\ No newline at end of file", "+one"]


def test_long_files_are_compared_from_both_ends() -> None:
    before = [f"line {n}" for n in range(5 * CLOSELY)]
    after = [*before[:3_000], "between", *before[3_000:]]
    shown = diff("a", "\n".join(before) + "\n", "\n".join(after) + "\n").split("\n")
    assert shown[2] == "@@ -2998,6 +2998,7 @@"
    assert shown[3:] == [f" {line}" for line in before[2_997:3_000]] + ["+between"] + [
        f" {line}" for line in before[3_000:3_003]
    ]


@pytest.mark.parametrize("lines", [CLOSELY, 10 * CLOSELY])
def test_diff_is_limited_in_size_and_time(lines: int) -> None:
    """The limits apply to the size and, for texts that are hard to compare, to the time."""
    dice = random.Random(7)
    before, after = ("\n".join(str(dice.randrange(120)) for _ in range(lines)) for _ in range(2))
    shown = diff("a", before, after)
    assert len(shown) <= MOST_CHARACTERS + 40
    longer = diff("a", "", "x" * 79 + "\n" + "y\n" * 2 * MOST_CHARACTERS)
    assert longer.endswith(" more lines]") and len(longer) <= MOST_CHARACTERS + 40


async def test_removed_content_cannot_be_compared(stack: Stack) -> None:
    """The request for approval is still opened: it must not wait for content that was removed."""
    workspace, change = new_id(), FileChange("a.txt", lambda before: "new")
    async with stack.pool.acquire() as connection, connection.transaction():
        await workspaces.change_in(
            connection, "default", workspace, lambda known: {"a.txt": {"sha256": "0" * 64, "size": 3, "mode": 420}}
        )
    assert "no longer kept" in (await diff_of(stack.pool, "default", workspace, change))["note"]
