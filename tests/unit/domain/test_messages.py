"""Messages: whatever happened in a session, the path of its nodes renders as a request the model API accepts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.messages import (
    ASSISTANT,
    NOTE,
    SUMMARY,
    TOOL_RESULTS,
    UNANSWERED,
    USER,
    Node,
    answer_calls,
    calls_of,
    mark_cacheable,
    render,
    shorten_results,
    since_checkpoint,
    text_of,
)
from domain.sessions.step import CallState, ToolCallResult

TEXTS = st.text(min_size=1, max_size=20)
MODELS = st.sampled_from(["one", "other"])
STATES = st.sampled_from(CallState)


def node(kind: str, body: dict[str, Any]) -> Node:
    return Node(id="n", parent=None, session_id="s", kind=kind, step=1, body=json.dumps(body))


@st.composite
def replies(draw: st.DrawFn, turn: int) -> Node:
    blocks: list[dict[str, Any]] = []
    if draw(st.booleans()):
        blocks.append({"type": "thinking", "thinking": draw(TEXTS), "signature": "x"})
    if draw(st.booleans()):
        blocks.append({"type": "redacted_thinking", "data": "x"})
    blocks += [{"type": "text", "text": draw(TEXTS)} for _ in range(draw(st.integers(0, 2)))]
    calls = draw(st.integers(0, 3))
    blocks += [{"type": "tool_use", "id": f"call-{turn}-{n}", "name": "bash", "input": {}} for n in range(calls)]
    return node(ASSISTANT, {"model": draw(MODELS), "content": blocks})


@st.composite
def known_results(draw: st.DrawFn, calls: int) -> list[ToolCallResult]:
    answered = draw(st.sets(st.integers(0, calls - 1))) if calls else set()
    return [ToolCallResult(index=n, state=draw(STATES), text=draw(st.text(max_size=20))) for n in sorted(answered)]


@st.composite
def paths(draw: st.DrawFn) -> list[Node]:
    """A session as the platform writes it: results of the last calls, then what else came, then the next reply."""
    path = [node(USER, {"parts": [{"type": "text", "text": draw(TEXTS)}]})]
    for turn in range(draw(st.integers(0, 5))):
        path.append(draw(replies(turn)))
        calls = calls_of(path[-1])
        if calls:
            path.append(node(TOOL_RESULTS, answer_calls(calls, draw(known_results(len(calls))))))
        for kind in draw(st.lists(st.sampled_from([USER, NOTE, SUMMARY]), max_size=3)):
            text = draw(TEXTS)
            path.append(node(kind, {"parts": [{"type": "text", "text": text}]} if kind == USER else {"text": text}))
    return path


@pytest.mark.proves("S2-B08")
@given(paths(), MODELS)
def test_roles_alternate_and_every_call_is_answered_in_the_next_message(path: list[Node], model: str) -> None:
    messages = render(path, model)
    assert messages[0]["role"] == "user"
    assert all(one["role"] != next_["role"] for one, next_ in zip(messages, messages[1:], strict=False))
    assert all(message["content"] for message in messages)
    for place, message in enumerate(messages):
        asked = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        following = messages[place + 1]["content"] if place + 1 < len(messages) else []
        answered = [block["tool_use_id"] for block in following if block["type"] == "tool_result"]
        assert asked == answered, "each call once, in order"
        assert not asked or [block["type"] for block in following[: len(asked)]] == ["tool_result"] * len(asked)


@given(paths(), MODELS)
def test_thoughts_are_shown_to_the_model_that_had_them_only(path: list[Node], model: str) -> None:
    thoughts = ("thinking", "redacted_thinking")
    shown = [block for message in render(path, model) for block in message["content"] if block["type"] in thoughts]
    own = [
        block
        for reply in since_checkpoint(path)
        if reply.kind == ASSISTANT and reply.content()["model"] == model
        for block in reply.content()["content"]
        if block["type"] in thoughts
    ]
    assert shown == own


@given(paths())
def test_a_checkpoint_replaces_all_that_was_before_it(path: list[Node]) -> None:
    shown = since_checkpoint(path)
    assert path[len(path) - len(shown) :] == shown
    checkpoints = [place for place, one in enumerate(path) if one.kind == SUMMARY]
    assert len(path) - len(shown) == (checkpoints[-1] if checkpoints else 0)
    if checkpoints:
        text = path[checkpoints[-1]].content()["text"]
        assert render(path, "one")[0]["content"][0]["text"] == f"<checkpoint>\n{text}\n</checkpoint>"


@given(st.integers(0, 4), st.data())
def test_every_call_has_an_answer_and_only_a_good_one_counts_as_success(count: int, data: st.DataObject) -> None:
    calls = [{"type": "tool_use", "id": f"call-{n}", "name": "bash", "input": {}} for n in range(count)]
    results = data.draw(known_results(count))
    answers = answer_calls(calls, results)["results"]
    assert [answer["tool_use_id"] for answer in answers] == [call["id"] for call in calls]
    known = {result.index: result for result in results if result.state is not CallState.STARTED}
    for index, answer in enumerate(answers):
        assert answer["text"] == (known[index].text if index in known else UNANSWERED)
        assert answer["failed"] == (index not in known or known[index].state is not CallState.OK)


@given(paths(), st.integers(0, 10))
def test_shortening_cuts_long_results_and_nothing_else(path: list[Node], limit: int) -> None:
    for before, after in zip(path, shorten_results(path, limit), strict=True):
        if before.kind != TOOL_RESULTS:
            assert after == before
            continue
        for old, new in zip(before.content()["results"], after.content()["results"], strict=True):
            assert {**old, "text": ""} == {**new, "text": ""}
            assert (
                new["text"] == old["text"]
                if len(old["text"]) <= limit
                else new["text"].startswith(old["text"][:limit] + f"\n[… {len(old['text']) - limit} ")
            )


@given(paths())
def test_cache_points_close_the_last_two_user_messages(path: list[Node]) -> None:
    messages = render(path, "one")
    mark_cacheable(messages)
    marked = [
        (message["role"], place == len(message["content"]) - 1)
        for message in messages
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    users = sum(message["role"] == "user" for message in messages)
    assert marked == [("user", True)] * min(users, 2)


def test_each_kind_of_node_has_its_text() -> None:
    reply = {"content": [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "1"}, {"type": "text", "text": "b"}]}
    assert text_of(node(ASSISTANT, reply)) == "a\n\nb"
    assert text_of(node(USER, {"parts": [{"text": "a"}, {"text": "b"}]})) == "a\n\nb"
    assert text_of(node(TOOL_RESULTS, {"results": [{"text": "a"}]})) == "a"
    assert text_of(node(NOTE, {"text": "a"})) == text_of(node(SUMMARY, {"text": "a"})) == "a"
