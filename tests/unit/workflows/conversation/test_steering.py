"""A message to a session that ends while it is signalled reaches the next session of its thread."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from domain.conversations.requests import ConversationState, StartSession, Steer, WaitingMessage
from tests.unit.workflows.conversation.pretend import ROOT, PretendStarter, Row, Store, conversation, run, session_input
from workflows.conversation.router import Resume
from workflows.conversation.workflow import Conversation


class Ending(PretendStarter):
    """The session posts its end while it is being signalled."""

    signalled: list[str]
    conversation: Conversation

    async def signal(self, session_id: str, name: str, argument: Any) -> None:
        self.signalled.append(session_id)
        row = self.store.sessions[session_id]
        if row.live:
            ended = self.store.finish(row, committed=True)
            self.conversation.actions.extend(self.conversation.router.close_session(ended))


def talk() -> tuple[Conversation, Ending]:
    store = Store()
    made = conversation(store, ConversationState())
    starter = Ending(made.start, made.state, store)
    made.starter = starter
    starter.signalled, starter.conversation = [], made
    assert store.accept(Row("first", ROOT), [], []) is None
    submission = StartSession.model_construct(
        request_id="first", session=session_input("first"), thread_id=ROOT, queued=False
    )
    run(starter.start_accepted(submission))
    return made, starter


@pytest.mark.exactly_once
def test_message_to_session_that_ends_meanwhile_starts_the_next_one() -> None:
    made, starter = talk()
    starter.store.inbox["note"] = None
    steered = run(made.steer_thread(Steer(request_id="r", thread=ROOT, message="note")))
    assert steered.session_id == "first"
    run(made.work_off())
    [after] = [row for row in starter.store.sessions.values() if row.live]
    assert after.id != "first" and after.inbox == ["note"]
    assert made.state.threads[ROOT].live == after.id and not made.state.threads[ROOT].inbox


def test_resumed_thread_whose_session_ends_hands_all_messages_to_the_next_one() -> None:
    """Two messages are signalled again; the session ends after the first."""
    made, starter = talk()
    made.state.threads[ROOT].inbox += [WaitingMessage(id="one"), WaitingMessage(id="two")]
    starter.store.inbox |= {"one": None, "two": None}
    run(made.carry_out([Resume(ROOT)]))
    assert starter.signalled == ["first", "first"]
    run(made.work_off())
    [after] = [row for row in starter.store.sessions.values() if row.live]
    assert after.inbox == ["one", "two"]


def test_message_that_was_in_the_rows_is_not_delivered_again_by_its_own_request() -> None:
    """The conversation loads the message, opens a session with it, and then handles the request that sent it."""
    made, starter = talk()
    made.router.close_session(starter.store.finish(starter.store.sessions["first"], committed=True))
    made.state.threads[ROOT].inbox.append(WaitingMessage(id="note"))
    starter.store.inbox["note"] = None
    made.actions.append(Resume(ROOT))
    steered = run(made.steer_thread(Steer(request_id="r", thread=ROOT, message="note")))
    [after] = [row for row in starter.store.sessions.values() if row.live]
    assert after.inbox == ["note"] and steered.session_id == after.id
    assert not starter.signalled and not made.state.threads[ROOT].inbox
    made.router.close_session(starter.store.finish(after, committed=True))
    again = run(made.steer_thread(Steer(request_id="again", thread=ROOT, message="note")))
    assert again.session_id == after.id and starter.store.live_on(ROOT) is None


def test_steering_an_idle_thread_is_refused() -> None:
    made, _ = talk()
    with pytest.raises(ApplicationError, match="Nothing is running there"):
        run(made.steer_thread(Steer(request_id="r", thread="elsewhere", message="note")))
