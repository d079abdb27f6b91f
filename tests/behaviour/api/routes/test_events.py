"""The event stream over a real connection: replay, live events, resuming, end; watching changes nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from httpx2.websockets import WebSocketDisconnect

from api.streams import feeds as stream
from domain.events import Message, MessageDelta, Progress
from store import events, keys
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import end, key_for, record, serving, submitted


async def frames(answer: httpx2.Response) -> AsyncIterator[dict[str, Any]]:
    """Parse server-sent events as specified: fields up to an empty line; comments are skipped."""
    event: dict[str, Any] = {}
    async for line in answer.aiter_lines():
        if not line and "data" in event:
            yield {**event, "data": json.loads(event["data"])}
            event = {}
        elif line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


async def watch(client: httpx2.AsyncClient, task_id: str, **headers: str) -> list[int]:
    async with client.stream("GET", f"/tasks/{task_id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        return [int(event["id"]) async for event in frames(answer)]


@pytest.mark.proves("S1-45", "S0-B10")
async def test_stream_replays_then_follows_then_ends(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    await record(pool, task_id, Progress(message="before"))
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(10), api.stream("GET", f"/tasks/{task_id}/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache"
        async for event in frames(answer):
            seen.append(event)
            if len(seen) == 2:
                await record(pool, task_id, Progress(message="live"))
            if len(seen) == 3:
                await end(pool, task_id)
    assert [event["event"] for event in seen] == ["task_submitted", "progress", "progress", "task_completed"]
    assert [event["id"] for event in seen] == ["1", "2", "3", "4"]
    last = seen[2]["data"]
    assert last["type"] == "progress" and last["seq"] == 3 and last["session_id"] == task_id
    assert last["message"] == "live" and last["at"]


@pytest.mark.proves("S0-B10")
async def test_stream_resumes_from_every_event(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    await record(pool, task_id, *(Progress(message=str(n)) for n in range(5)))
    await end(pool, task_id)
    for after in range(7):
        assert await watch(api, task_id, **{"Last-Event-ID": str(after)}) == list(range(after + 1, 8))
    answer = await api.get(f"/tasks/{task_id}/events?after=3")
    assert answer.text.count("\nid: ") == 5  # the initial position, and four events
    done = await api.get(f"/tasks/{task_id}/events", headers={"Last-Event-ID": "7"})
    assert done.status_code == 204


@pytest.mark.proves("S0-B20")
async def test_a_reader_who_resumes_inside_an_ended_text_gets_it_whole(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    pieces = [MessageDelta(step=1, text=f"piece {number} ") for number in range(300)]
    text = "".join(piece.text for piece in pieces)
    await record(pool, task_id, *pieces, Message(step=1, text=text))
    await end(pool, task_id)
    assert await watch(api, task_id) == list(range(1, 304))
    while await events.delete_pieces(pool, timedelta(0), 20):
        pass
    for url in (f"/tasks/{task_id}/events", f"/conversations/{task_id}/events"):
        for after in (0, 1, 2, 150, 301, 302):
            got = await api.get(url, params={"after": after}, headers={"Accept": "application/json"})
            shown = got.json()["items"]
            assert [one["seq"] for one in shown] == [seq for seq in (1, 302, 303) if seq > after]
            assert [one["text"] for one in shown if one["type"] == "message"] == [text] * (after < 302)
    assert await watch(api, task_id, **{"Last-Event-ID": "150"}) == [302, 303]


@pytest.mark.proves("S0-B11", "S1-06")
async def test_slow_and_disconnected_readers_change_nothing(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    reader = api.stream("GET", f"/tasks/{task_id}/events")
    slow = frames(await reader.__aenter__())  # this client reads one event and then stops reading
    await anext(slow)
    async with api.stream("GET", f"/tasks/{task_id}/events") as vanishing:
        await anext(frames(vanishing))
    started = time.monotonic()
    for _ in range(20):
        await record(pool, task_id, *(Message(step=1, text="x" * 20_000) for _ in range(10)))
    await end(pool, task_id)
    assert time.monotonic() - started < 5
    assert await watch(api, task_id) == list(range(1, 203))
    rest = [int(event["id"]) async for event in slow]
    assert rest == list(range(2, 203))
    await reader.__aexit__(None, None, None)


async def test_events_arrive_without_notifications(settings: Any, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """NOTIFY is only a hint: without a listener, the fallback read still finds every event."""
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr("store.events.listen", _never)
    async with serving(settings) as url, httpx2.AsyncClient(base_url=url) as client:
        task_id = await submitted(client)
        viewer = asyncio.create_task(watch(client, task_id))
        await asyncio.sleep(0.2)
        await record(pool, task_id, Progress(message="quiet"))
        await end(pool, task_id)
        async with asyncio.timeout(5):
            assert await viewer == [1, 2, 3]


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


async def test_revoked_key_ends_its_streams_though_others_wake_them(
    keyed_url: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr("api.routes.notifications.LOOK_SECONDS", 0.1)
    monkeypatch.setattr(stream, "KEEPALIVE_SECONDS", 0.1)
    headers = await key_for(pool, "revoking", Right.SUBMIT, Right.READ)
    async with httpx2.AsyncClient(base_url=keyed_url, headers=headers) as client:
        task_id = await submitted(client)
        waking = asyncio.create_task(_wake(pool, f"revoking/{task_id}/x", "revoking/*/*"))
        kept = asyncio.Event()
        viewers = [
            asyncio.create_task(_read_until_end(client, f"/tasks/{task_id}/events", kept)),
            asyncio.create_task(_end_of_socket(f"{keyed_url.replace('http', 'ws')}/notifications", headers)),
        ]
        async with asyncio.timeout(5):
            await kept.wait()
        assert not any(viewer.done() for viewer in viewers)
        [key] = await keys.list_all(pool, "revoking")
        assert await keys.revoke(pool, "revoking", key.id)
        async with asyncio.timeout(5):
            assert await asyncio.gather(*viewers) == [None, 1008]
        waking.cancel()


async def _wake(pool: Pool, *payloads: str) -> None:
    while True:
        await pool.execute("SELECT pg_notify('events', payload) FROM unnest($1::text[]) payload", payloads)
        await asyncio.sleep(0.02)


async def _read_until_end(client: httpx2.AsyncClient, path: str, kept: asyncio.Event) -> None:
    async with client.stream("GET", path) as answer:
        async for line in answer.aiter_lines():
            if line.startswith(":"):
                kept.set()


async def _end_of_socket(url: str, headers: dict[str, str]) -> int:
    async with httpx2.AsyncClient() as http, http.websocket(url, headers=headers) as socket:
        with pytest.raises(WebSocketDisconnect) as closed:
            await socket.receive_text()
    return closed.value.code


async def test_a_feed_of_own_notices_passes_over_those_of_others(keyed_url: str, pool: Pool) -> None:
    one, other = [await key_for(pool, "own-feed", name=name) for name in ("one", "other")]
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        for headers in (one, other):
            await end(pool, await submitted(client, headers), tenant="own-feed")
        url, plain = "/notifications?after=0&mine=true", {"Accept": "application/json"}
        every = (await client.get("/notifications?after=0", headers=one | plain)).json()
        page = (await client.get(url, headers=one | plain)).json()
        assert page["items"] == every["items"][:1] and page["next_after"] == every["next_after"]
        async with asyncio.timeout(5), client.stream("GET", url, headers=one) as answer:
            async for line in answer.aiter_lines():
                if line == f"id: {every['next_after']}":  # from there it resumes
                    break
        socket_url = f"{keyed_url.replace('http', 'ws')}/notifications?after=0"
        async with client.websocket(f"{socket_url}&mine=1", headers=other) as socket:
            first = json.loads(await socket.receive_text())
        assert first == (await client.get(url, headers=other | plain)).json()["items"][0] != every["items"][0]
        with pytest.raises(Exception, match="422"):
            async with client.websocket(f"{socket_url}&mien=1", headers=other):
                pass
