"""The nodes that a model call adds before its reply."""

from datetime import UTC, datetime

from activities.model.reply import INTERRUPTED, build_prelude
from domain.messages import ASSISTANT, NOTE, USER, Node, NoteBody, ReplyBody, TextBlock, UserBody
from domain.sessions.session import AgentRef, ModelCall, Purpose, SessionRef, Usage
from store.messages import StepFacts

REF = SessionRef(tenant="default", session_id="s", conversation_id="s")
ASKED = Node(id="1", parent=None, session_id="s", kind=USER, step=1, body=UserBody(parts=[TextBlock(text="Hi")]))
SAID = Node(id="2", parent="1", session_id="s", kind=ASSISTANT, step=1, body=ReplyBody(content=[TextBlock(text="Hel")]))


def call(purpose: Purpose = Purpose.TURN) -> ModelCall:
    agent = AgentRef(owner="*", name="tester", version=1)
    bounds = {"deadline": datetime.now(UTC), "usage": Usage()}
    return ModelCall(ref=REF, agent=agent, model="m", purpose=purpose, step=2, version=1, head="2", **bounds)  # type: ignore[arg-type]


def test_a_model_is_not_asked_to_continue_its_own_last_message() -> None:
    """The context ends with an interrupted reply, for instance after a reset: vendors refuse such a request."""
    [node] = build_prelude(call(), [ASKED, SAID], StepFacts())
    assert (node.kind, node.body) == (NOTE, NoteBody(text=INTERRUPTED))
    assert node.parent == SAID.id


def test_nothing_is_added_after_a_message_of_others() -> None:
    assert build_prelude(call(), [ASKED], StepFacts()) == []
    assert build_prelude(call(), [], StepFacts()) == []
    assert build_prelude(call(Purpose.COMPACT), [ASKED, SAID], StepFacts()) == []
    other = SAID.model_copy(update={"side": "b"})  # for this side, the other side's text is a user message
    assert build_prelude(call(), [ASKED, other], StepFacts()) == []
