"""A fire takes the outcomes that wait in the store, whatever the conversation knows of them."""

import pytest

from domain.conversations.requests import ConversationState, EndedSession, Fire, Live, Thread
from tests.unit.workflows.conversation.pretend import NEW, ROOT, Mail, PretendStarter, Store, conversation, pending, run
from workflows.conversation.workflow import Conversation

FIRE = Fire(request_id="f", session_id="f", session=NEW)


def prepared(known: list[str], held: list[str]) -> tuple[Conversation, PretendStarter]:
    """A conversation that knows some of the outcomes, and an asynchronous child `c` that runs."""
    store = Store()
    store.mail = {message_id: Mail(source="s", thread=ROOT) for message_id in held}
    live = {"c": Live(thread="c", spawned_by="s", spawner=ROOT)}
    threads = {ROOT: Thread(), "c": Thread(parent=ROOT)}
    state = ConversationState(pending=[pending(message_id) for message_id in known], live=live, threads=threads)
    made = conversation(store, state)
    assert isinstance(made.starter, PretendStarter)
    return made, made.starter


@pytest.mark.parametrize("known", [["m1", "m2"], ["m2", "m1"], ["m1"], [], ["m1", "m2", "consumed"]])
def test_a_fire_takes_every_outcome_in_the_store(known: list[str]) -> None:
    made, starter = prepared(known, held=["m1", "m2"])
    run(made.fire_mailbox(FIRE))
    assert starter.store.sessions["f"].inbox == ["m1", "m2"]
    assert made.state.pending == [] and made.state.delivered == {"m1": "f", "m2": "f"}


@pytest.mark.parametrize("posted", ["m2", "later"])
@pytest.mark.parametrize("known", [["m1"], ["m1", "m2"]])
def test_a_post_during_the_fire_leaves_only_what_the_fire_did_not_take(known: list[str], posted: str) -> None:
    made, starter = prepared(known, held=["m1", "m2"])
    ended = EndedSession(session_id="c", outcome=pending(posted))
    starter.meanwhile = lambda: made.actions.extend(made.router.close_session(ended))
    run(made.fire_mailbox(FIRE))
    assert [one.id for one in made.state.pending] == (["later"] if posted == "later" else [])
    assert made.state.delivered == {"m1": "f", "m2": "f"}
