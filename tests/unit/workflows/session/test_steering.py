"""A word to a session that ends just as it is told: the conversation goes on, and the word is heard by the next one."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from domain.conversations.requests import StartSession, Steer
from domain.conversations.state import ConversationState, WaitingMessage
from tests.behaviour.workflows.pretend import ROOT, PretendStarter, Row, Store, conversation, run, session_input
from workflows.conversation.router import OutcomeRouter
from workflows.conversation.workflow import Conversation


class Ending(PretendStarter):
    """The session's last word comes while it is being told."""

    told: list[str]
    mail: OutcomeRouter

    async def tell(self, session_id: str, name: str, message: Any) -> None:
        self.told.append(session_id)
        row = self.store.sessions[session_id]
        if row.live:
            self.mail.session_done(self.store.finish(row, committed=True))


def talk() -> tuple[Conversation, Ending]:
    store = Store()
    made = conversation(store, ConversationState())
    starter = Ending(made.start, made.state, store)
    made.starter, made.mail = starter, OutcomeRouter(made.start, made.state, starter)
    starter.told, starter.mail = [], made.mail
    assert store.accept(Row("first", ROOT), [], []) is None
    submission = StartSession.model_construct(
        request_id="first", session=session_input("first"), thread_id=ROOT, queued=False
    )
    run(starter.start_accepted(submission))
    return made, starter


@pytest.mark.proves("F-06", "F-09")
def test_a_word_to_one_that_ends_meanwhile() -> None:
    made, starter = talk()
    starter.store.inbox["word"] = None
    steered = run(made._steer(Steer(request_id="r", thread=ROOT, message="word")))
    assert steered.session_id == "first"
    run(made.mail.work())
    [after] = [row for row in starter.store.sessions.values() if row.live]
    assert after.id != "first" and after.inbox == ["word"]
    assert made.state.threads[ROOT].live == after.id and not made.state.threads[ROOT].inbox


def test_what_waits_is_told_to_somebody() -> None:
    """Two words are told again; the session ends after the first, and the second is not told to nobody."""
    made, starter = talk()
    made.state.threads[ROOT].inbox += [WaitingMessage(id="one"), WaitingMessage(id="two")]
    starter.store.inbox |= {"one": None, "two": None}
    run(made.mail._resume(ROOT))
    assert starter.told == ["first", "first"]
    run(made.mail.work())
    [after] = [row for row in starter.store.sessions.values() if row.live]
    assert after.inbox == ["one", "two"]


def test_a_word_where_nobody_is_at_work() -> None:
    made, _ = talk()
    with pytest.raises(ApplicationError, match="Nothing is running there"):
        run(made._steer(Steer(request_id="r", thread="elsewhere", message="word")))
