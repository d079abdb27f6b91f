"""A new session becomes a complete row, in which SQL fills in no defaults."""

import pytest

from domain.sessions.new_session import NewSession
from domain.sessions.session import DeliveryMode, SessionRef


@pytest.mark.parametrize(
    ("spawned_by", "own", "given", "written"),
    [
        (None, None, None, None),  # no session waits for it
        ("parent", None, None, DeliveryMode.HOLD),
        ("parent", DeliveryMode.WAKE, None, DeliveryMode.WAKE),
        ("parent", DeliveryMode.WAKE, DeliveryMode.EXPLICIT, DeliveryMode.EXPLICIT),
    ],
)
def test_a_child_always_has_a_delivery(
    spawned_by: str | None, own: DeliveryMode | None, given: DeliveryMode | None, written: DeliveryMode | None
) -> None:
    new = NewSession(agent_owner="*", agent="a", agent_version=1, models=["m"], spawned_by=spawned_by, delivery=own)
    ref = SessionRef(tenant="default", session_id="s", conversation_id="c")
    assert new.place(ref, delivery=given).delivery is written


def test_a_continuation_answers_in_the_same_thread_of_a_channel_but_not_the_same_message() -> None:
    spec = {"input": "x", "channel": {"thread": "t1", "message_id": "m1"}}
    new = NewSession(agent_owner="*", agent="a", agent_version=1, models=["m"], spec=spec)
    assert NewSession.continuing(new).spec == {"input": "x", "channel": {"thread": "t1", "message_id": None}}
