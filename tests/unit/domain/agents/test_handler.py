"""What a handler is given of a conversation, and which replies it may give."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from domain.agents.handler import AnsweredCall, HandlerMessage, HandlerReply, Speaker, as_handler_sees
from domain.messages import ASSISTANT, NOTE, TOOL_RESULTS, USER, Node


def node(kind: str, side: str, body: dict[str, Any], author: str = "") -> Node:
    return Node(id="n", parent=None, session_id="s", kind=kind, side=side, author=author, step=1, body=json.dumps(body))


def said(side: str, text: str, *calls: str, **more: Any) -> Node:
    blocks = [{"type": "text", "text": text}]
    blocks += [{"type": "tool_use", "id": name, "name": name, "input": {"x": name}} for name in calls]  # type: ignore[dict-item]
    return node(ASSISTANT, side, {"content": blocks, **more}, author=side.upper())


def test_handler_sees_its_own_calls_with_results_and_only_the_text_of_the_other_side() -> None:
    path = [
        node(USER, "a", {"parts": [{"type": "text", "text": "Begin."}]}, author="ann"),
        said("a", "Thinking.", "secret_tool", turn_text="Your move."),
        node(TOOL_RESULTS, "a", {"results": [{"text": "hidden", "failed": False}]}),
        node(NOTE, "a", {"text": "for the other side"}),
        said("b", "Looking.", "one", "two"),
        node(TOOL_RESULTS, "b", {"results": [{"text": "1", "failed": False}, {"text": "no", "failed": True}]}),
        node(NOTE, "b", {"text": "for this side"}),
    ]
    assert as_handler_sees(path, "b") == [
        HandlerMessage(speaker=Speaker.USER, name="ann", text="Begin."),
        HandlerMessage(speaker=Speaker.OTHER, name="A", text="Your move."),
        HandlerMessage(
            speaker=Speaker.SELF,
            name="B",
            text="Looking.",
            calls=[
                AnsweredCall(name="one", input={"x": "one"}, result="1"),
                AnsweredCall(name="two", input={"x": "two"}, result="no", failed=True),
            ],
        ),
        HandlerMessage(speaker=Speaker.PLATFORM, text="for this side"),
    ]


@pytest.mark.parametrize("reply", [{}, {"text": "  "}, {"text": "x", "ends": "maybe"}, {"text": "x", "next": "b"}])
def test_reply_that_says_nothing_or_something_else_is_refused(reply: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HandlerReply.model_validate(reply)
