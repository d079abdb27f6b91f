"""One feed of all events, by server-sent events, pages and WebSocket: readers resume it without gaps or duplicates."""

import asyncio
import json
import re
from typing import Any

import httpx2
import pytest

from domain.events import EVENTS
from tests.behaviour.notifications.subscribers import Subscribers
from tests.support.stack import Stack, eventually

WAITS = 20


async def page(stack: Stack, after: int | None = None, **more: Any) -> dict[str, Any]:
    params = {**({} if after is None else {"after": str(after)}), "limit": "1000", **more}
    answer = await stack.http.get("/notifications", params=params, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def by_sse(stack: Stack, after: int, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(WAITS), httpx2.AsyncClient(base_url=stack.url, timeout=None) as http:
        received: list[dict[str, Any]] = []
        async with http.sse("/notifications", headers={"Last-Event-ID": str(after)}) as source:
            async for sent in source:
                if not sent.data:
                    continue
                received.append(json.loads(sent.data))
                assert (sent.id, sent.event) == (str(received[-1]["number"]), received[-1]["type"])
                if len(received) == count:
                    return received
    raise AssertionError("the stream ended")


async def by_socket(stack: Stack, after: int, count: int, **headers: str) -> list[dict[str, Any]]:
    url = f"{stack.url.replace('http', 'ws')}/notifications?after={after}"
    async with (
        asyncio.timeout(WAITS),
        httpx2.AsyncClient(timeout=10) as http,
        http.websocket(url, headers=headers) as socket,
    ):
        return [json.loads(await socket.receive_text()) for _ in range(count)]


async def at_rest(stack: Stack) -> int:
    """Return the end of the feed, once the tasks that other tests left running have ended."""

    async def still() -> tuple[int] | None:
        before: int = (await page(stack))["next_after"]
        await asyncio.sleep(2)
        return (before,) if (await page(stack))["next_after"] == before else None

    [end] = await eventually(still, what="the feed rests")  # 0 on a new stack
    return end


@pytest.mark.proves("S0-B16")
async def test_two_readers_that_reconnect_see_the_same_feed(subscribers: Subscribers) -> None:
    stack = subscribers.stack
    start = await at_rest(stack)
    live = asyncio.create_task(by_socket(stack, start, 4))
    for _ in range(2):
        done = await stack.run("[[script:say text=x]]")
    first = await by_sse(stack, start, 3)
    renamed = {"title": "y", "metadata": {"a": 1}}
    assert (await stack.http.patch(f"/conversations/{done['task_id']}", json=renamed)).is_success
    for _ in range(2):
        await stack.run("[[script:say text=y]]")
    rest = await by_sse(stack, first[-1]["number"], 6)
    whole = (await page(stack, start))["items"]
    assert first + rest == whole == await by_socket(stack, start, 9)
    assert await live == whole[:4]
    assert [one["number"] for one in whole] == list(range(start + 1, start + 10))
    two = ["session_started", "session_completed"] * 2
    assert [one["type"] for one in whole] == [*two, "conversation_updated", *two]
    assert whole[4]["changed"] == ["metadata", "title"]


async def test_feed_says_which_notices_are_no_longer_kept(subscribers: Subscribers) -> None:
    for _ in range(2):  # older notices than the one that is kept, in case other tests left none
        await subscribers.stack.run("[[script:say text=x]]")
    head = (await page(subscribers.stack))["next_after"]
    await subscribers.stack.pool.execute("DELETE FROM notices WHERE tenant = 'default' AND number < $1", head)
    answer = await subscribers.stack.http.get("/notifications", params={"after": str(head - 2)})
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:errand:problem:cursor-expired")
    assert [one["number"] for one in (await page(subscribers.stack, 0))["items"]] == [head]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer nobody"},
        {"Origin": "https://elsewhere.example"},
    ],
)
async def test_a_socket_is_for_callers_only(stack: Stack, headers: dict[str, str]) -> None:
    with pytest.raises(Exception) as caught:
        await by_socket(stack, 0, 1, **headers)
    assert "40" in str(caught.value)
    assert "without completing handshake" not in stack.part("api").log.read_text()


async def test_the_events_of_interest_are_events(stack: Stack) -> None:
    body = await stack.pool.fetchval("SELECT prosrc FROM pg_proc WHERE proname = 'is_notable'")
    named = set(re.findall(r"'(\w+)'", body))
    assert named and named <= {event.type for event in EVENTS}
