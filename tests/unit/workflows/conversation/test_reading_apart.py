"""A message that is read apart never reaches the running session, and takes turns with the queued sessions."""

from domain.conversations.requests import ConversationState, EndedSession, Live, Opened, Thread, WaitingMessage
from tests.unit.workflows.conversation.pretend import ROOT, session_input
from workflows.conversation.router import OutcomeRouter, Resume


def begin(router: OutcomeRouter, state: ConversationState) -> list[str]:
    """Let the next session begin and end; returns what it was given."""
    opening = router.next_opening(ROOT)
    assert opening is not None
    state.threads[ROOT].live, state.live[opening.session_id] = opening.session_id, Live(thread=ROOT)
    opened = Opened(session_id=opening.session_id, start=session_input(opening.session_id))
    assert router.record_opening(opening, opened) == []
    router.close_session(EndedSession(session_id=opening.session_id))
    return [opening.session_id, *opening.take] if opening.session_id.startswith("queued") else opening.take


def test_messages_read_apart_and_queued_sessions_take_turns() -> None:
    inbox = [WaitingMessage(id=name, apart=True) for name in ("one", "two")]
    thread = Thread(live="now", queue=["queued1", "queued2"], inbox=[*inbox, WaitingMessage(id="note")])
    state = ConversationState(threads={ROOT: thread}, live={"now": Live(thread=ROOT)})
    router = OutcomeRouter(state)
    missed = router.find_missed(ROOT)
    assert missed is not None and missed.messages == ["note"]
    assert router.close_session(EndedSession(session_id="now")) == [Resume(ROOT)]
    assert begin(router, state) == ["one"]
    assert router.receive(ROOT, WaitingMessage(id="three", apart=True))
    assert begin(router, state) == ["queued1", "note"]
    assert begin(router, state) == ["two"]
    assert begin(router, state) == ["queued2"]
    assert begin(router, state) == ["three"]
    assert router.next_opening(ROOT) is None


def test_one_that_did_not_begin_lets_the_queue_begin() -> None:
    thread = Thread(queue=["queued1"], inbox=[WaitingMessage(id="one", apart=True)])
    state = ConversationState(threads={ROOT: thread})
    router = OutcomeRouter(state)
    opening = router.next_opening(ROOT)
    assert opening is not None and opening.take == ["one"]
    assert router.record_opening(opening, Opened(session_id=opening.session_id, refused="mailbox_empty")) == [
        Resume(ROOT)
    ]
    assert begin(router, state) == ["queued1"]
