"""The state that a reopened conversation loads: live sessions, waiting messages, and each thread's last ended
session."""

import asyncio

from domain.ids import new_id
from domain.sessions.session import Reason
from domain.sessions.writes import ThreadMessage
from store import conversations, sessions, threads
from store.conversation_state import find_stranded, load_state
from store.database import Pool
from store.sessions import WrittenEnding
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_sessions import end, ending
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


async def test_only_an_end_after_the_state_was_loaded_is_posted(pool: Pool, accept: Accept) -> None:
    """An earlier end is in the loaded state, so that nobody waits for a post."""
    early, late = await accept(), await accept()
    assert not (await end(pool, early, Reason.GOAL_REACHED)).has_workflow
    assert (await load_state(pool, "default", early.conversation_id)).live == {}
    assert (await load_state(pool, "default", late.conversation_id)).live.keys() == {late.session_id}
    assert (await end(pool, late, Reason.GOAL_REACHED)).has_workflow
    assert (await end(pool, late, Reason.GOAL_REACHED)).has_workflow  # a repetition posts again


async def test_a_state_that_is_loaded_during_an_end_has_the_end(pool: Pool, accept: Accept) -> None:
    """The end has decided not to post, but is not committed."""
    ref = await accept()
    async with pool.acquire() as connection, connection.transaction():
        written = await sessions.finish_session(connection, ending(ref, Reason.GOAL_REACHED))
        assert isinstance(written, WrittenEnding) and not written.has_workflow
        loading = asyncio.create_task(load_state(pool, "default", ref.conversation_id))
        await asyncio.sleep(0.2)
        assert not loading.done()
    assert (await loading).live == {}


async def test_a_message_to_a_terminated_thread_waits_for_nobody(pool: Pool, accept: Accept) -> None:
    """No session can take it, so its conversation must not be opened for it again and again."""
    told = [await accept(), await accept()]
    for root in told:
        child = child_of(root)
        await accepted(pool, child)
        message = ThreadMessage(
            id=new_id(), conversation_id=root.conversation_id, thread_id=ref_of(child).session_id, text="Go on."
        )
        await conversations.add_message(pool, "default", message)
    stranded = [("default", root.conversation_id) for root in told]
    looks = [await find_stranded(pool, 0, limit=1) for _ in range(40)]
    assert len({one for found in looks for one in found}) > 1  # none hides the others
    assert set(stranded) <= set(await find_stranded(pool, 0, limit=10_000))
    place = await threads.get(pool, "default", message.thread_id)
    assert place is not None
    await threads.terminate(pool, "default", place, "someone")
    found = await find_stranded(pool, 0, limit=10_000)
    assert stranded[0] in found and stranded[1] not in found
