"""A reply whose text is replaced keeps its thoughts and calls, in their order."""

import pytest

from domain.messages import ModelResponse, ReplyBlock, TextBlock, ThinkingBlock, ToolCallBlock

THOUGHT = ThinkingBlock(text="Hm.", proof="s")
CALL = ToolCallBlock(id="c", name="look", arguments={})
ONE, TWO, NEW = TextBlock(text="One."), TextBlock(text="Two."), TextBlock(text="New.")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([THOUGHT, ONE, CALL], [THOUGHT, NEW, CALL]),
        ([THOUGHT, ONE, CALL, TWO], [THOUGHT, NEW, CALL]),
        ([THOUGHT, CALL, CALL], [THOUGHT, NEW, CALL, CALL]),
        ([THOUGHT], [THOUGHT, NEW]),
        ([], [NEW]),
        ([ONE, NEW], [NEW]),
    ],
)
def test_new_text_replaces_the_old(before: list[ReplyBlock], after: list[ReplyBlock]) -> None:
    turn = ModelResponse(content=before)
    turn.replace_text("New.")
    assert turn.content == after
