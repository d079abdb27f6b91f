"""edit_file: several exact replacements in one call, all or none, and what the model reads if one does not fit."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.tools.builtin.edit_file import TOOL, Edit, EditError, apply_edits
from activities.tools.tool import ToolContext, ToolResult
from tests.unit.activities.tools.conftest import MakeContext

TEXTS = st.text("ab\n\r", max_size=12)
EDITS = st.lists(
    st.builds(Edit, old=st.text("ab\n\r", min_size=1, max_size=3), new=TEXTS, all=st.booleans()),
    min_size=1,
    max_size=4,
)


async def edit(context: ToolContext, *edits: tuple[str, str], **more: object) -> ToolResult:
    given = [{"old": old, "new": new, **more} for old, new in edits]
    return await TOOL.answer(TOOL.input.model_validate({"path": "f", "edits": given}), context)


@given(TEXTS, EDITS)
def test_edits_equal_replacements_one_after_the_other(text: str, edits: list[Edit]) -> None:
    expected: str | None = text
    for one in edits:
        if expected is None:
            break
        if "\n" in expected and expected.count("\n") == expected.count("\r\n"):
            old, new = ("\r\n".join(part.replace("\r\n", "\n").split("\n")) for part in (one.old, one.new))
        else:
            old, new = one.old, one.new
        pieces = expected.split(old)
        expected = new.join(pieces) if len(pieces) == 2 or (len(pieces) > 2 and one.all) else None
    if expected is None:
        with pytest.raises(EditError):
            apply_edits(text, edits)
    else:
        assert apply_edits(text, edits)[0] == expected


async def test_an_edit_that_does_not_fit_leaves_the_file_and_says_what_to_do(
    context: ToolContext, workspace: Path
) -> None:
    (workspace / "f").write_text("def a():\n    return 1\n\ndef b():\n    return 1\n")
    for edits, reason in (
        (
            [("def a", "def c"), ("return 1", "return 2")],
            "Edit 2 of 2: The text to replace occurs 2 times, from lines 2, 5",
        ),
        (
            [("def a", "def c"), ("def a()", "x")],
            "An earlier edit of this call may have changed it. Read the file again",
        ),
        ([("def a():\n  return 1", "x")], "but lines 1 to 2 differ from it only in white space"),
        ([("return 1\n}", "x")], "Its first line is in lines 2, 5."),
        ([("return 1\n\n", ""), ("no such thing", "x")], "Edit 2 of 2: The text to replace is not in the file."),
    ):
        failed = await edit(context, *edits)
        assert failed.failed and reason in failed.text and "'f' was not changed" in failed.text, failed.text
        assert (workspace / "f").read_text().count("return 1") == 2 and "def a" in (workspace / "f").read_text()
    assert "2 replacements" in (await edit(context, ("return 1", "return 2"), all=True)).text
    assert (workspace / "f").read_text().count("return 2") == 2


async def test_a_file_cannot_be_made_huge(context: ToolContext, workspace: Path) -> None:
    (workspace / "f").write_text("a" * 1_000_000)
    refused = await edit(context, ("a", "b" * 100_000), all=True)
    assert refused.failed and "more than 5,000,000 characters" in refused.text
    assert (workspace / "f").stat().st_size == 1_000_000


@pytest.mark.parametrize(
    "edits",
    [
        [("beta", "gamma")],
        [("beta", "beta\ngamma")],
        [("beta", "")],
        [("alpha", "beta2"), ("beta2\n", "gamma\n")],
        [("alpha", "one"), ("beta", "")],
    ],
)
async def test_a_repeated_call_changes_nothing(
    make_context: MakeContext, workspace: Path, edits: list[tuple[str, str]]
) -> None:
    (workspace / "f").write_text("alpha\nbeta\n")
    assert not (await edit(make_context(), *edits)).failed
    after = (workspace / "f").read_text()
    again = await edit(make_context(again=True), *edits)
    assert not again.failed and "earlier attempt" in again.text
    assert (workspace / "f").read_text() == after
