"""The message tree: one of several repeated appends is committed, and the projection only moves forward."""

import asyncio
from typing import Any

import asyncpg
import pytest

from domain.events import EventRow, Progress
from domain.ids import new_id
from domain.messages import ASSISTANT, Node, ReplyBody
from domain.sessions.session import ModelReply, SessionRef, StopReason, Usage
from domain.sessions.writes import NewNode, StepBegin, StepCommit
from store import messages, sessions
from store.database import Pool
from tests.behaviour.store.conftest import Accept


def step(ref: SessionRef, idem: str, version: int, text: str, *, parent: str | None = None, **more: Any) -> StepCommit:
    node = new_id()
    reply = ModelReply(head=node, stop_reason=StopReason.ANSWERED, usage=Usage(llm_calls=1), preview=text)
    written = Node(
        id=node, parent=parent, session_id=ref.session_id, kind=ASSISTANT, step=1, body=ReplyBody(content=[])
    )
    return StepCommit(
        tenant=ref.tenant,
        session_id=ref.session_id,
        idem=idem,
        version=version,
        head=node,
        usage=reply.usage,
        progress=text,
        reply=reply,
        nodes=[NewNode(**dict(written), idem=idem, reply=reply)],
        events=[EventRow.of(ref, Progress(message=text))],
        **more,
    )


def begin(ref: SessionRef, idem: str, attempt: int, **more: Any) -> StepBegin:
    return StepBegin(
        tenant=ref.tenant, session_id=ref.session_id, idem=idem, version=1, step=1, attempt=attempt, **more
    )


@pytest.mark.proves("D12")
async def test_one_of_many_attempts_is_committed(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    attempts = [step(ref, "session/x/1", 2, f"attempt {number}") for number in range(6)]
    committed = await asyncio.gather(*(messages.commit_step(pool, attempt) for attempt in attempts))
    assert len({reply.head for reply in committed}) == 1
    [node] = await messages.of_session(pool, "default", ref.session_id)
    assert node.id == committed[0].head
    facts = await messages.begin_step(pool, begin(ref, "session/x/1", 7))
    assert facts.reply == committed[0].model_dump_json()


async def test_a_node_that_another_step_wrote_is_not_taken_for_its_reply(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    one = step(ref, "session/y/1", 2, "one")
    await messages.commit_step(pool, one)
    with pytest.raises(asyncpg.UniqueViolationError):
        await messages.commit_step(pool, one.model_copy(update={"idem": "session/y/2", "version": 3}))


async def test_the_projection_only_moves_forward(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await messages.commit_step(pool, step(ref, "two", 4, "newer"))
    await messages.commit_step(pool, step(ref, "one", 2, "older"))
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and (row.version, row.progress) == (4, "newer")
