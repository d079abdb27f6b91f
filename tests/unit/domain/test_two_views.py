"""Two sides over one message tree: whatever they do, each one's view is a request that the model API accepts."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from domain.messages import ASSISTANT, NOTE, NOTHING_SAID, SUMMARY, TOOL_RESULTS, USER, Node, answer_calls, render
from offline.checks import check
from offline.wire import sign

TEXT = st.text(max_size=12)
SPOKEN = st.text(alphabet="abc ", min_size=1, max_size=12).filter(str.strip)
SIDES = ("a", "b")


def node(kind: str, side: str, body: dict[str, Any]) -> Node:
    return Node(id="n", parent=None, session_id="s", kind=kind, side=side, step=1, body=json.dumps(body))


def said(side: str, text: str, *tools: str, **more: Any) -> list[Node]:
    """A response of a side, with the results of its calls."""
    calls = [{"type": "tool_use", "id": f"{side}-{text}-{name}", "name": name, "input": {}} for name in tools]
    blocks = [*([{"type": "text", "text": text}] if text else []), *calls]
    nodes = [node(ASSISTANT, side, {"content": blocks, "model": "m", **more})]
    return [*nodes, node(TOOL_RESULTS, side, answer_calls(calls, []))] if calls else nodes


def user(text: str) -> Node:
    return node(USER, "a", {"parts": [{"type": "text", "text": text}]})


@st.composite
def responses(draw: st.DrawFn, side: str, number: int) -> list[Node]:
    blocks: list[dict[str, Any]] = []
    if draw(st.booleans()):
        thought = draw(SPOKEN)
        blocks.append({"type": "thinking", "thinking": thought, "signature": sign(thought)})
    blocks += [{"type": "text", "text": text} for text in draw(st.lists(SPOKEN, max_size=2))]
    calls = [
        {"type": "tool_use", "id": f"{number}-{index}", "name": "bash", "input": {}}
        for index in range(draw(st.integers(0 if blocks else 1, 2)))
    ]
    body: dict[str, Any] = {"content": blocks + calls, "model": draw(st.sampled_from(["m", "other"]))}
    if draw(st.booleans()):
        body["turn_text"] = draw(TEXT)
    nodes = [node(ASSISTANT, side, body)]
    if calls:
        nodes.append(node(TOOL_RESULTS, side, answer_calls(calls, [])))
    return nodes


@st.composite
def conversations(draw: st.DrawFn) -> list[Node]:
    """Turns of several responses in any order, with messages from outside, notes and checkpoints between them."""
    path = [user(draw(SPOKEN))]
    for number, side in enumerate(draw(st.lists(st.sampled_from(SIDES), max_size=8))):
        path += draw(responses(side, number))
        for kind in draw(st.lists(st.sampled_from([USER, NOTE, SUMMARY]), max_size=2)):
            if kind == USER:
                path.append(user(draw(SPOKEN)))
            else:
                path.append(node(kind, draw(st.sampled_from(SIDES)), {"text": draw(SPOKEN)}))
    return path


@given(conversations(), st.sampled_from(SIDES))
def test_the_view_of_each_side_is_a_request_that_the_api_accepts(path: list[Node], side: str) -> None:
    messages = render(path, "m", side)
    if messages[-1]["role"] == "assistant":  # only one side has spoken: the platform adds a note before it asks again
        assert all(one.side == side for one in path)
        messages.append({"role": "user", "content": [{"type": "text", "text": "note"}]})
    check({"model": "m", "max_tokens": 10, "messages": messages})


@given(conversations(), st.sampled_from(SIDES))
def test_no_tool_call_of_the_other_side_is_visible(path: list[Node], side: str) -> None:
    own = {
        block["id"]
        for one in path
        if one.kind == ASSISTANT and one.side == side
        for block in one.content()["content"]
        if block["type"] == "tool_use"
    }
    shown = [block for message in render(path, "m", side) for block in message["content"]]
    assert {block["id"] for block in shown if block["type"] == "tool_use"} <= own
    assert {block["tool_use_id"] for block in shown if block["type"] == "tool_result"} <= own


def test_each_side_sees_itself_as_assistant_and_the_other_as_user() -> None:
    path = [user("Draw a tree."), *said("a", "Here it is.", "write"), *said("b", "Too small."), *said("a", "Larger.")]
    assert _texts(render(path, "m", "a")) == [
        ("user", ["Draw a tree."]),
        ("assistant", ["Here it is."]),
        ("user", ["Too small."]),
        ("assistant", ["Larger."]),
        ("user", [NOTHING_SAID]),
    ]
    assert _texts(render(path, "m", "b")) == [
        ("user", ["Draw a tree.", "Here it is."]),
        ("assistant", ["Too small."]),
        ("user", ["Larger."]),
    ]


def test_the_message_of_a_stop_tool_is_what_the_other_side_sees() -> None:
    path = [user("Go."), *said("a", "thinking aloud", "done", turn_text="The result.")]
    assert _texts(render(path, "m", "b")) == [("user", ["Go.", "The result."])]


def test_a_checkpoint_shortens_only_the_view_of_its_own_side() -> None:
    path = [user("Go."), *said("a", "one"), *said("b", "two"), node(SUMMARY, "a", {"text": "so far"}), *said("b", "x")]
    assert _texts(render(path, "m", "a")) == [("user", ["<checkpoint>\nso far\n</checkpoint>", "x"])]
    assert _texts(render(path, "m", "b"))[0] == ("user", ["Go.", "one"])


def test_notes_of_the_platform_are_for_the_side_they_were_written_for() -> None:
    path = [user("Go."), *said("a", "one"), node(NOTE, "b", {"text": "hurry"}), *said("b", "two")]
    assert all("hurry" not in text for _, texts in _texts(render(path, "m", "a")) for text in texts)


def _texts(messages: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    shown = [(one["role"], [block["text"] for block in one["content"] if block["type"] == "text"]) for one in messages]
    return [(role, texts) for role, texts in shown if texts]
