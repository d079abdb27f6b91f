"""Only the current run of a session's workflow can begin, claim or commit anything."""

from typing import TypeVar

import pytest
from pydantic import BaseModel

from domain.ids import new_id
from domain.sessions.session import Effect, Reason, SessionRef
from domain.sessions.writes import (
    Acceptance,
    NewMessage,
    StepBegin,
    StepCommit,
    ThreadMessage,
)
from domain.task import parts_of
from store import conversations, messages, runs, sessions, tool_calls
from store.database import Pool
from store.runs import Holder, NotCurrentRun, SessionEnded
from tests.behaviour.store.conftest import Accept, new_session
from tests.behaviour.store.test_messages import begin, step
from tests.behaviour.store.test_requests import ask, settle
from tests.behaviour.store.test_sessions import ending
from tests.behaviour.store.test_tool_calls import claim, outcome

pytestmark = pytest.mark.exactly_once
W = TypeVar("W", bound=BaseModel)


def beginning(ref: SessionRef, run: str, version: int = 1) -> StepBegin:
    return begin(ref, f"{run}/{version}", 1, run=run).model_copy(update={"version": version})


def commit(ref: SessionRef, run: str, version: int = 2) -> StepCommit:
    return step(ref, f"{run}/{version}", version, "x", run=run)


def of_run(write: W, run: str) -> W:
    return write.model_copy(update={"run": run})


async def test_a_run_that_was_superseded_begins_claims_and_commits_nothing(pool: Pool, accept: Accept) -> None:
    ref, node, asked = await accept(), new_id(), new_id()
    await messages.begin_step(pool, beginning(ref, "first"))
    assert await ask(pool, ref, asked, run="first")
    assert (await tool_calls.claim(pool, of_run(claim(ref, node, 1, Effect.ONCE), "first"))).go
    assert await runs.take_over(pool, Holder(tenant=ref.tenant, session_id=ref.session_id, run_id="first"), "second")
    refused = [
        messages.begin_step(pool, beginning(ref, "first", 5)),
        messages.commit_step(pool, commit(ref, "first", 6)),
        tool_calls.claim(pool, of_run(claim(ref, new_id(), 1, Effect.IDEMPOTENT), "first")),
        tool_calls.claim(pool, of_run(claim(ref, new_id(), 1, Effect.READ), "first")),
        tool_calls.commit(pool, of_run(outcome(ref, node, 1, "late"), "first")),
        ask(pool, ref, new_id(), run="first"),
        settle(pool, ref, asked, run="first"),
        sessions.finish_session(pool, of_run(ending(ref, Reason.ERROR), "first")),
    ]
    for write in refused:
        with pytest.raises(NotCurrentRun) as error:
            await write
        assert error.value.holder == Holder(tenant=ref.tenant, session_id=ref.session_id, run_id="second")
    row = await sessions.get(pool, ref.tenant, ref.session_id)
    assert row is not None and (row.version, row.head, row.status) == (1, None, "input_required")
    counted = "SELECT count(*) FROM {} WHERE session_id = $1"
    for table, number in (("messages", 0), ("tool_calls", 1), ("input_requests", 1)):
        assert await pool.fetchval(counted.format(table), ref.session_id) == number
    # the new run finds the claim of the old one and does not run the call again
    again = await tool_calls.claim(pool, of_run(claim(ref, node, 1, Effect.ONCE, "second/1"), "second"))
    assert (again.go, again.state) == (False, "unknown")


async def test_session_is_taken_over_only_from_the_expected_run(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await messages.begin_step(pool, beginning(ref, "first"))
    seen = Holder(tenant=ref.tenant, session_id=ref.session_id, run_id="first")
    assert await runs.take_over(pool, seen, "newest")
    assert not await runs.take_over(pool, seen, "older")


async def test_nothing_begins_in_a_session_that_has_ended(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await sessions.finish_session(pool, ending(ref, Reason.GOAL_REACHED))
    with pytest.raises(SessionEnded):
        await messages.begin_step(pool, beginning(ref, "another"))
    with pytest.raises(SessionEnded):
        await tool_calls.claim(pool, of_run(claim(ref, new_id(), 1, Effect.ONCE), "another"))
    again = await sessions.finish_session(pool, of_run(ending(ref, Reason.ERROR), "another"))
    assert isinstance(again, sessions.WrittenEnding) and again.reason is Reason.GOAL_REACHED


async def test_run_that_takes_over_reads_what_was_committed(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await messages.begin_step(pool, beginning(ref, "first"))
    written = await messages.commit_step(pool, commit(ref, "first"))
    running, ended = [(await accept()).session_id for _ in range(2)]
    spawned = "UPDATE sessions SET spawned_by = $2, delivery = 'hold', live = id = $3 WHERE id = ANY($1::text[])"
    await pool.execute(spawned, [running, ended], ref.session_id, running)
    row = await sessions.get(pool, ref.tenant, ref.session_id)
    assert row is not None and row.run_id == "first"
    state = await runs.state(pool, row)
    assert (state.line.head, state.line.step, state.step, state.version) == (written.head, 1, 1, 2)
    assert state.line.pending == written and state.usage.llm_calls == 1
    assert (state.ended, state.children_started) == ([ended], 2)


async def test_a_message_is_read_by_one_session_and_in_one_step(pool: Pool, accept: Accept) -> None:
    """Whatever the workflows ask for: the row of the message decides."""
    ref, message_id = await accept(), new_id()
    message = ThreadMessage(
        id=message_id, conversation_id=ref.conversation_id, thread_id=ref.conversation_id, text="Mind the gap."
    )
    await conversations.add_message(pool, ref.tenant, message)

    async def read(of: SessionRef, version: int) -> list[str]:
        wanted = beginning(of, "run", version).model_copy(update={"take": [message_id]})
        return [one.id for one in (await messages.begin_step(pool, wanted)).inbox]

    assert await read(ref, 1) == await read(ref, 2) == [message_id]  # an attempt that failed is repeated
    await messages.commit_step(pool, commit(ref, "run", 3).model_copy(update={"take": [message_id]}))
    assert await read(ref, 4) == []
    row = await sessions.get(pool, ref.tenant, ref.session_id)
    assert row is not None and message_id not in (await runs.state(pool, row)).inbox
    await sessions.finish_session(pool, ending(ref, Reason.GOAL_REACHED))
    after = new_session(ref.conversation_id)
    again = NewMessage(id=message_id, parts=parts_of("Mind the gap."))
    refused = await sessions.accept(pool, Acceptance(session=after, inbox=[again]))
    assert refused.session is None and refused.read_by == ref.session_id
    assert (await sessions.accept(pool, Acceptance(session=after))).session is not None
    assert await read(after.ref, 1) == []


async def test_messages_that_open_a_session_wait_until_its_first_step_is_committed(pool: Pool, accept: Accept) -> None:
    """A continuation has a head before its first step: that of the session before it."""
    ref = await accept()
    await messages.begin_step(pool, beginning(ref, "run"))
    await messages.commit_step(pool, commit(ref, "run"))
    row = await sessions.get(pool, ref.tenant, ref.session_id)
    assert row is not None
    ended = ending(ref, Reason.GOAL_REACHED).model_copy(update={"head": row.head, "output": "Said."})
    await sessions.finish_session(pool, ended)
    opening = NewMessage(id=new_id(), parts=parts_of("And then?"))
    accepted = await sessions.accept(pool, Acceptance(session=new_session(ref.conversation_id), inbox=[opening]))
    assert accepted.session is not None and accepted.session.head is not None
    state = await runs.state(pool, accepted.session)
    assert (state.inbox, state.seen_messages) == ([opening.id], [opening.id])
    after = accepted.session.ref
    await messages.commit_step(pool, commit(after, "run", 5).model_copy(update={"take": [opening.id]}))
    row = await sessions.get(pool, after.tenant, after.session_id)
    assert row is not None and (await runs.state(pool, row)).inbox == []
