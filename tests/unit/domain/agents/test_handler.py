"""The conversation as a handler sees it, and the replies it may return."""

from typing import Any

import pytest
from pydantic import ValidationError

from domain.agents.handler import AnsweredCall, HandlerMessage, HandlerReply, Speaker, as_handler_sees
from domain.messages import (
    Body,
    Node,
    NoteBody,
    ReplyBody,
    ResultsBody,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBody,
)


def node(side: str, body: Body, author: str = "") -> Node:
    return Node(id="n", parent=None, session_id="s", kind=body.kind, side=side, author=author, step=1, body=body)


def said(side: str, text: str, *calls: str, turn_text: str | None = None) -> Node:
    made = [ToolCallBlock(id=name, name=name, arguments={"x": name}) for name in calls]
    return node(side, ReplyBody(content=[TextBlock(text=text), *made], turn_text=turn_text), author=side.upper())


def result(text: str, failed: bool = False) -> ToolResultBlock:
    return ToolResultBlock(call_id="c", text=text, failed=failed)


def test_handler_sees_its_own_calls_with_results_and_only_the_text_of_the_other_side() -> None:
    path = [
        node("a", UserBody(parts=[TextBlock(text="Begin.")]), author="ann"),
        said("a", "Thinking.", "secret_tool", turn_text="Your move."),
        node("a", ResultsBody(results=[result("hidden")])),
        node("a", NoteBody(text="for the other side")),
        said("b", "Looking.", "one", "two"),
        node("b", ResultsBody(results=[result("1"), result("no", failed=True)])),
        node("b", NoteBody(text="for this side")),
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


@pytest.mark.parametrize("value", [object(), "\ud800"])
def test_arguments_that_are_not_json_are_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        HandlerReply.model_validate({"calls": [{"name": "bash", "input": {"x": value}}]})
