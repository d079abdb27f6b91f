"""Messages: the path of nodes renders as a request the model API accepts, for each of two sides, and
every reply is shown once."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.model.anthropic import render_request
from domain.conversations.display_messages import find_said_before
from domain.messages import (
    SUMMARY,
    Body,
    ModelRequest,
    Node,
    NoteBody,
    ReplyBlock,
    ReplyBody,
    ResultsBody,
    SummaryBody,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBody,
    answer_calls,
    calls_of,
    hide_nodes,
    render_messages,
    since_checkpoint,
)
from offline.checks import check
from offline.wire import sign

TEXT = st.text(max_size=12)
SPOKEN = st.text(alphabet="abc ", min_size=1, max_size=12).filter(str.strip)
SIDES = ("a", "b")


def side_node(side: str, body: Body) -> Node:
    return Node(id="n", parent=None, session_id="s", kind=body.kind, side=side, step=1, body=body)


def response(side: str, body: ReplyBody) -> list[Node]:
    """A response of a side, with the results of its calls."""
    nodes = [side_node(side, body)]
    return [*nodes, side_node(side, answer_calls(body.calls, []))] if body.calls else nodes


def user(text: str) -> Node:
    return side_node("a", UserBody(parts=[TextBlock(text=text)]))


@st.composite
def responses(draw: st.DrawFn, side: str, number: int) -> list[Node]:
    blocks: list[ReplyBlock] = []
    if draw(st.booleans()):
        thought = draw(SPOKEN)
        blocks.append(ThinkingBlock(text=thought, proof=sign(thought)))
    blocks += [TextBlock(text=text) for text in draw(st.lists(SPOKEN, max_size=2))]
    blocks += [
        ToolCallBlock(id=f"{number}-{index}", name="bash", arguments={})
        for index in range(draw(st.integers(0 if blocks else 1, 2)))
    ]
    turn_text = draw(TEXT) if draw(st.booleans()) else None
    model = draw(st.sampled_from(["m", "other"]))
    return response(side, ReplyBody(content=blocks, model=model, turn_text=turn_text))


@st.composite
def conversations(draw: st.DrawFn) -> list[Node]:
    """Turns of several responses in any order, with messages from outside, notes and checkpoints between them."""
    path = [user(draw(SPOKEN))]
    for number, side in enumerate(draw(st.lists(st.sampled_from(SIDES), max_size=8))):
        path += draw(responses(side, number))
        for kind in draw(st.lists(st.sampled_from([UserBody, NoteBody, SummaryBody]), max_size=2)):
            text = draw(SPOKEN)
            path.append(user(text) if kind is UserBody else side_node(draw(st.sampled_from(SIDES)), kind(text=text)))
    return path


def check_accepted(path: list[Node], side: str) -> None:
    """The path as this side sees it is a request that the API accepts."""
    messages = render_messages(path, "m", side)
    notes = []
    if messages[-1].role == "assistant":  # only one side has spoken: the platform adds a note before it asks again
        assert all(one.side == side for one in path)
        notes = ["note"]
    assert all(one.role != next_.role for one, next_ in itertools.pairwise(messages))
    check(render_request(ModelRequest(model="m", max_tokens=10, system="s", messages=messages, notes=notes)))


@given(conversations(), st.sampled_from(SIDES))
def test_the_view_of_each_side_is_a_request_that_the_api_accepts(path: list[Node], side: str) -> None:
    check_accepted(path, side)


@given(conversations(), st.sets(st.integers(0, 30)))
def test_hiding_messages_keeps_calls_with_their_results_and_the_newest_message(
    path: list[Node], hidden: set[int]
) -> None:
    path = [one.model_copy(update={"id": f"n{place}"}) for place, one in enumerate(path)]
    shown = hide_nodes(path, {f"n{place}" for place in hidden})
    assert shown[-1] == path[-1] and [one for one in path if one in shown] == shown
    gone = [one for one in path if one not in shown]
    assert not [one for one in gone if one.kind == SUMMARY]
    assert {one.id for one in gone} >= {one.id for one in path[:-2] if one.id[1:] in map(str, hidden)} - {
        one.id for one in path if one.kind == SUMMARY
    }
    for before, after in itertools.pairwise([*shown, None]):
        assert before is None or not calls_of(before) or (after and isinstance(after.body, ResultsBody))


@given(conversations(), st.sampled_from(SIDES))
def test_thoughts_are_shown_to_the_model_that_had_them_only(path: list[Node], side: str) -> None:
    messages = render_messages(path, "m", side)
    shown = [block for one in messages for block in one.content if isinstance(block, ThinkingBlock)]
    own = [
        block
        for reply in since_checkpoint(path, side)
        if isinstance(reply.body, ReplyBody) and reply.body.model == "m" and reply.side == side
        for block in reply.body.content
        if isinstance(block, ThinkingBlock)
    ]
    assert shown == own


@given(conversations(), st.sampled_from(SIDES))
def test_no_tool_call_of_the_other_side_is_visible(path: list[Node], side: str) -> None:
    own = {call.id for one in path if one.side == side for call in calls_of(one)}
    shown = [block for message in render_messages(path, "m", side) for block in message.content]
    assert {block.id for block in shown if isinstance(block, ToolCallBlock)} <= own
    assert {block.call_id for block in shown if isinstance(block, ToolResultBlock)} <= own


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
    assert find_said_before(replies, output, typed=typed) == earlier
    assert find_said_before([], output, typed=typed) == []
