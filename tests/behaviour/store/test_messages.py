"""The message tree: an append may be repeated, and of two attempts one stands; the projection only moves forward."""

import asyncio
from typing import Any

import pytest

from domain.events import Progress
from domain.ids import new_id
from domain.sessions.session import SessionRef, Usage
from domain.sessions.step import ModelReply
from store import messages, sessions
from store.database import Pool
from store.events import to_row
from tests.behaviour.store.conftest import Accept


def step(ref: SessionRef, idem: str, version: int, words: str) -> dict[str, Any]:
    node = new_id()
    reply = ModelReply(head=node, stop_reason="end_turn", usage=Usage(llm_calls=1), preview=words)
    return {
        "tenant": ref.tenant,
        "session_id": ref.session_id,
        "idem": idem,
        "version": version,
        "head": node,
        "usage": reply.usage.model_dump_json(),
        "progress": words,
        "reply": reply.model_dump_json(),
        "nodes": [
            {
                "id": node,
                "parent": None,
                "idem": idem,
                "kind": "assistant",
                "author": "",
                "line": "main",
                "step": 1,
                "body": "{}",
                "reply": reply.model_dump_json(),
            }
        ],
        "events": [to_row(ref, Progress(message=words))],
    }


@pytest.mark.proves("D12")
async def test_of_many_attempts_one_stands(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    attempts = [step(ref, "session/x/1", 2, f"attempt {number}") for number in range(6)]
    stands = await asyncio.gather(*(messages.commit_step(pool, attempt) for attempt in attempts))
    assert len({reply.head for reply in stands}) == 1
    [node] = await messages.of_session(pool, "default", ref.session_id)
    assert node.id == stands[0].head
    begun = {"tenant": "default", "session_id": ref.session_id, "idem": "session/x/1", "version": 1, "step": 1}
    facts = await messages.begin_step(pool, {**begun, "attempt": 7, "take": [], "events": [], "again": []})
    assert facts.reply == stands[0].model_dump_json()


async def test_the_projection_only_moves_forward(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    await messages.commit_step(pool, step(ref, "two", 4, "newer"))
    await messages.commit_step(pool, step(ref, "one", 2, "older"))
    row = await sessions.get(pool, "default", ref.session_id)
    assert row is not None and (row.version, row.progress) == (4, "newer")


@pytest.mark.proves("D13")
async def test_a_path_is_read_from_its_head(pool: Pool, accept: Accept) -> None:
    ref = await accept()
    ids: list[str] = []
    for number in range(5):
        document = step(ref, f"step {number}", number + 1, "x")
        document["nodes"][0]["parent"] = ids[-1] if ids else None
        ids.append(document["head"])
        await messages.commit_step(pool, document)
    assert [node.id for node in await messages.path(pool, "default", ids[3])] == ids[:4]
    assert [node.id for node in await messages.path(pool, "default", ids[4], known=ids[1])] == ids[2:]
    assert await messages.path(pool, "somebody else", ids[4]) == []
