import json
from typing import Any

from domain.conversations.display_messages import PREVIEW, display_messages
from domain.messages import ASSISTANT, NOTE, SUMMARY, TOOL_RESULTS, USER, Node


def node(kind: str, step: int, **body: Any) -> Node:
    return Node(id="n", parent=None, session_id="s", kind=kind, author="helper", step=step, body=json.dumps(body))


def test_display_messages_are_what_people_read() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    answer = {"tool_use_id": "c1", "text": "x" * (PREVIEW + 5), "failed": True}
    shown = display_messages(
        [
            node(SUMMARY, 1, text="So far."),
            node(USER, 1, parts=[{"type": "text", "text": "List."}]),
            node(ASSISTANT, 1, content=[thought, {"type": "text", "text": "Looking."}, call]),
            node(TOOL_RESULTS, 2, results=[answer]),
            node(NOTE, 2, text="Two steps are left."),
            node(ASSISTANT, 2, content=[{"type": "text", "text": " "}]),
        ]
    )
    assert shown == [
        {"type": "checkpoint", "text": "So far.", "step": 1},
        {"type": "user", "text": "List.", "step": 1},
        {"type": "assistant", "author": "helper", "text": "Looking.", "step": 1},
        {"type": "tool_call", "tool": "bash", "input": '{"command": "ls"}', "step": 1},
        {
            "type": "tool_result",
            "tool": "bash",
            "failed": True,
            "text": "x" * PREVIEW + "… [5 more characters]",
            "step": 2,
        },
        {"type": "note", "text": "Two steps are left.", "step": 2},
    ]
