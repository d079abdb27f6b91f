"""The state that a reopened conversation loads: live sessions, waiting messages, and each thread's last ended
session."""

from domain.ids import new_id
from domain.sessions.session import Reason
from domain.sessions.session_writes import ThreadMessage
from store import conversations
from store.conversation_state import load_state
from store.database import Pool
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_sessions import end
from tests.behaviour.store.test_trees import accepted, child_of, ref_of


async def test_the_newest_ending_of_a_thread_is_known(pool: Pool, accept: Accept) -> None:
    """Without it, a message that woke a thread in vain would wake the same ended session again."""
    root = await accept()
    child = child_of(root)
    await accepted(pool, child)
    name = ref_of(child).session_id
    await conversations.add_message(
        pool,
        "default",
        ThreadMessage(id=new_id(), conversation_id=root.conversation_id, thread_id=name, text="Go on."),
    )
    assert (await load_state(pool, "default", root.conversation_id)).threads[name].last is None
    await end(pool, ref_of(child), Reason.ERROR)
    state = await load_state(pool, "default", root.conversation_id)
    assert (state.threads[name].last, state.threads[name].live) == (name, None)
    assert state.threads[root.conversation_id].live == root.session_id
