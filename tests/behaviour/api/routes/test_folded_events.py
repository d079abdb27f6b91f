"""Feeds of sessions whose deltas were folded: the same bytes as before, from every position."""

import asyncio
from typing import Any

import httpx2
import pytest

from domain.events import EventRow, MessageDelta
from store import events, folded_events
from store.database import Pool
from tests.behaviour.api.conftest import end, record, ref, run, spawned, submitted
from tests.behaviour.api.routes.test_events import frames

JSON = {"Accept": "application/json"}


def pieces(count: int, text: str = "piece ") -> list[MessageDelta]:
    return [MessageDelta(step=1, text=f"{text}{number}") for number in range(count)]


async def fold(pool: Pool, *session_ids: str) -> None:
    for session_id in session_ids:
        assert await folded_events.fold_session(pool, "default", session_id)


@pytest.mark.proves("S0-B10")
async def test_task_can_be_followed_from_every_position(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    await record(pool, task_id, *pieces(300))
    await end(pool, task_id)

    async def everything() -> list[str]:
        url = f"/tasks/{task_id}/events"
        positions = (*range(20), 127, 128, 129, 130, 200, 300, 301)
        streams = [(await api.get(url, headers={"Last-Event-ID": str(after)})).text for after in positions]
        pages = [(await api.get(url, params={"after": after, "limit": 130}, headers=JSON)).text for after in positions]
        return streams + pages

    before = await everything()
    assert all("piece 299" in text for text in before[:20])
    await fold(pool, task_id)
    assert await everything() == before


@pytest.mark.proves("S0-B10", "S0-B11")
async def test_fold_does_not_disturb_a_reader_half_way_through(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    long = pieces(600, "x" * 10_000)  # more than the buffers between server and reader take
    for start in range(0, 600, 100):
        await record(pool, task_id, *long[start : start + 100])
    async with asyncio.timeout(30), api.stream("GET", f"/tasks/{task_id}/events") as answer:
        reader = frames(answer)
        seen: list[dict[str, Any]] = [await anext(reader) for _ in range(100)]
        await end(pool, task_id)
        await fold(pool, task_id)
        seen += [frame async for frame in reader]
    assert [int(frame["id"]) for frame in seen] == list(range(1, 603))
    assert [frame["data"]["text"] for frame in seen if frame["event"] == "message_delta"] == [one.text for one in long]
    assert seen[-1]["event"] == "task_completed"


@pytest.mark.proves("S0-B16")
async def test_conversation_stays_readable_while_one_of_its_sessions_is_folded(
    api: httpx2.AsyncClient, pool: Pool
) -> None:
    root = (await run(api))["session_id"]
    child = await spawned(pool, root)
    both = [ref(root), ref(child, conversation_id=root)]
    for one in pieces(200):
        await events.append(pool, "", [EventRow.of(of, one) for of in both])
    await end(pool, child)
    url = f"/conversations/{root}/events"

    async def pages() -> list[str]:
        return [(await api.get(url, params={"after": n}, headers=JSON)).text for n in range(0, 400, 7)]

    before = await pages()
    async with asyncio.timeout(20), api.stream("GET", url) as answer:
        reader = frames(answer)
        seen = [await anext(reader) for _ in range(50)]
        await fold(pool, child)
        assert await pages() == before
        await record(pool, root, MessageDelta(step=1, text="and on"))
        while seen[-1]["data"].get("text") != "and on":
            seen.append(await anext(reader))
    assert [int(frame["id"]) for frame in seen] == list(range(1, len(seen) + 1))
