"""Two sides over one message tree: whatever they do, each one's view is a request that the model API accepts."""

from hypothesis import given
from hypothesis import strategies as st

from activities.model.anthropic import render_request
from domain.messages import (
    NOTHING_SAID,
    Body,
    ModelMessage,
    ModelRequest,
    Node,
    NoteBody,
    ReplyBlock,
    ReplyBody,
    SummaryBody,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    UserBody,
    answer_calls,
    calls_of,
    render_messages,
)
from offline.checks import check
from offline.wire import sign

TEXT = st.text(max_size=12)
SPOKEN = st.text(alphabet="abc ", min_size=1, max_size=12).filter(str.strip)
SIDES = ("a", "b")


def node(side: str, body: Body) -> Node:
    return Node(id="n", parent=None, session_id="s", kind=body.kind, side=side, step=1, body=body)


def response(side: str, body: ReplyBody) -> list[Node]:
    """A response of a side, with the results of its calls."""
    nodes = [node(side, body)]
    return [*nodes, node(side, answer_calls(body.calls, []))] if body.calls else nodes


def said(side: str, text: str, *tools: str, turn_text: str | None = None) -> list[Node]:
    calls = [ToolCallBlock(id=f"{side}-{text}-{name}", name=name, arguments={}) for name in tools]
    return response(side, ReplyBody(content=[TextBlock(text=text), *calls], model="m", turn_text=turn_text))


def user(text: str) -> Node:
    return node("a", UserBody(parts=[TextBlock(text=text)]))


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
            path.append(user(text) if kind is UserBody else node(draw(st.sampled_from(SIDES)), kind(text=text)))
    return path


@given(conversations(), st.sampled_from(SIDES))
def test_the_view_of_each_side_is_a_request_that_the_api_accepts(path: list[Node], side: str) -> None:
    messages = render_messages(path, "m", side)
    notes = []
    if messages[-1].role == "assistant":  # only one side has spoken: the platform adds a note before it asks again
        assert all(one.side == side for one in path)
        notes = ["note"]
    check(render_request(ModelRequest(model="m", max_tokens=10, system="s", messages=messages, notes=notes)))


@given(conversations(), st.sampled_from(SIDES))
def test_no_tool_call_of_the_other_side_is_visible(path: list[Node], side: str) -> None:
    own = {call.id for one in path if one.side == side for call in calls_of(one)}
    shown = [block for message in render_messages(path, "m", side) for block in message.content]
    assert {block.id for block in shown if isinstance(block, ToolCallBlock)} <= own
    assert {block.call_id for block in shown if isinstance(block, ToolResultBlock)} <= own


def test_each_side_sees_itself_as_assistant_and_the_other_as_user() -> None:
    path = [user("Draw a tree."), *said("a", "Here it is.", "write"), *said("b", "Too small."), *said("a", "Larger.")]
    assert _texts(render_messages(path, "m", "a")) == [
        ("user", ["Draw a tree."]),
        ("assistant", ["Here it is."]),
        ("user", ["Too small."]),
        ("assistant", ["Larger."]),
        ("user", [NOTHING_SAID]),
    ]
    assert _texts(render_messages(path, "m", "b")) == [
        ("user", ["Draw a tree.", "Here it is."]),
        ("assistant", ["Too small."]),
        ("user", ["Larger."]),
    ]


def test_the_message_of_a_stop_tool_is_what_the_other_side_sees() -> None:
    path = [user("Go."), *said("a", "thinking aloud", "done", turn_text="The result.")]
    assert _texts(render_messages(path, "m", "b")) == [("user", ["Go.", "The result."])]


def test_a_checkpoint_shortens_only_the_view_of_its_own_side() -> None:
    path = [user("Go."), *said("a", "one"), *said("b", "two"), node("a", SummaryBody(text="so far")), *said("b", "x")]
    assert _texts(render_messages(path, "m", "a")) == [("user", ["<checkpoint>\nso far\n</checkpoint>", "x"])]
    assert _texts(render_messages(path, "m", "b"))[0] == ("user", ["Go.", "one"])


def test_notes_of_the_platform_are_for_the_side_they_were_written_for() -> None:
    path = [user("Go."), *said("a", "one"), node("b", NoteBody(text="hurry")), *said("b", "two")]
    assert all("hurry" not in text for _, texts in _texts(render_messages(path, "m", "a")) for text in texts)


def _texts(messages: list[ModelMessage]) -> list[tuple[str, list[str]]]:
    shown = [(one.role, [block.text for block in one.content if isinstance(block, TextBlock)]) for one in messages]
    return [(role, texts) for role, texts in shown if texts]
