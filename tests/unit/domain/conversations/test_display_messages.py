import pytest

from domain.conversations.display_messages import PREVIEW, display_messages, said_before_the_end
from domain.messages import (
    Body,
    Node,
    NoteBody,
    ReplyBody,
    ResultsBody,
    SummaryBody,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBody,
)


def node(step: int, body: Body, side: str = "a") -> Node:
    return Node(id="n", parent=None, session_id="s", kind=body.kind, author="helper", side=side, step=step, body=body)


def test_display_messages_are_what_people_read() -> None:
    call = ToolCallBlock(id="c1", name="bash", arguments={"command": "ls", "token": "swordfish1"})
    answer = ToolResultBlock(call_id="c1", text="x" * (PREVIEW + 5), failed=True)
    shown = display_messages(
        [
            node(1, SummaryBody(text="So far.")),
            node(1, UserBody(parts=[TextBlock(text="List.")])),
            node(1, UserBody(parts=[TextBlock(text="Between us.")], visible=False)),
            node(1, UserBody(parts=[TextBlock(text="By the way.")], silent=True)),
            node(1, ReplyBody(content=[ThinkingBlock(text="hm", proof="x"), TextBlock(text="Looking."), call])),
            node(2, ResultsBody(results=[answer])),
            node(2, NoteBody(text="Two steps are left.")),
            node(2, ReplyBody(content=[TextBlock(text=" ")])),
            node(3, ReplyBody(content=[TextBlock(text="Seen.")]), side="b"),
        ]
    )
    assert [message.model_dump() for message in shown] == [
        {"type": "checkpoint", "text": "So far.", "step": 1},
        {"type": "user", "text": "List.", "step": 1},
        {"type": "user", "text": "By the way.", "silent": True, "step": 1},
        {"type": "assistant", "author": "helper", "text": "Looking.", "step": 1},
        {"type": "tool_call", "tool": "bash", "input": '{"command": "ls", "token": "[redacted]"}', "step": 1},
        {
            "type": "tool_result",
            "tool": "bash",
            "failed": True,
            "text": "x" * PREVIEW + "… [5 more characters]",
            "step": 2,
        },
        {"type": "note", "text": "Two steps are left.", "step": 2},
        {"type": "assistant", "author": "helper", "text": "Seen.", "step": 3, "side": "b"},
    ]


@pytest.mark.parametrize(
    ("output", "typed", "earlier"),
    [
        ("Seen.", False, ["Looking."]),  # the last reply is the output
        ("Approved.", False, ["Looking.", "Seen.\x07"]),  # a stop tool's message
        (None, False, ["Looking.", "Seen.\x07"]),  # it ended with an error
        ('{"seen": true}', True, ["Looking."]),
    ],
)
def test_every_reply_is_shown_once_beside_any_output(output: str | None, typed: bool, earlier: list[str]) -> None:
    replies = [ReplyBody(content=[TextBlock(text=text)]) for text in ("Looking.", "Seen.\x07")]
    assert said_before_the_end(replies, output, typed=typed) == earlier
    assert said_before_the_end([], output, typed=typed) == []
