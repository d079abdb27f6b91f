import json
from typing import Any

import httpx2
import pytest

from domain.events import EventRow, Progress
from store import events
from store.database import Pool
from tests.behaviour.api.conftest import end, problem, record, ref, run, spawned

JSON = {"Accept": "application/json"}


async def page(api: httpx2.AsyncClient, conversation_id: str, **query: Any) -> dict[str, Any]:
    answer = await api.get(f"/conversations/{conversation_id}/events", params=query, headers=JSON)
    found: dict[str, Any] = answer.json()
    return found


async def test_conversation_feed_has_the_events_of_all_sessions(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = (await run(api))["session_id"]
    await record(pool, root, Progress(message="begun"))
    child = await spawned(pool, root)
    await events.append(pool, "", [EventRow.of(ref(child, conversation_id=root), Progress(message="helping"))])
    await end(pool, root)
    await end(pool, child)
    whole = await page(api, root)
    assert [event["conv_seq"] for event in whole["items"]] == list(range(1, len(whole["items"]) + 1))
    assert [(event["type"], event["session_id"]) for event in whole["items"]] == [
        *(("task_submitted", root), ("progress", root), ("task_submitted", child), ("progress", child)),
        *(("task_completed", root), ("mailbox_updated", child), ("task_completed", child)),
    ]
    assert whole["items"][5]["pending_count"] == 1
    assert whole["closed"] is False  # a later message could continue the conversation
    rest = await page(api, root, after=5, limit=1)
    assert ([event["type"] for event in rest["items"]], rest["next_after"]) == (["mailbox_updated"], 6)


async def test_conversation_feed_can_be_followed_and_resumed(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = (await run(api))["session_id"]
    await end(pool, root, head="node-1")
    url = f"/conversations/{root}/events"
    async with api.stream("GET", url, headers={"Last-Event-ID": "1"}) as answer:
        seen: list[dict[str, Any]] = []
        ids = []
        later = ""
        async for line in answer.aiter_lines():
            if line.startswith("id:"):
                ids.append(int(line[3:]))
            if line.startswith("data:"):
                seen.append(json.loads(line[5:]))
                if seen[-1]["type"] == "task_completed":  # the end of a session is not the end of the feed
                    later = (await run(api, conversation_id=root))["session_id"]
                if seen[-1]["session_id"] == later:
                    break
    assert [event["type"] for event in seen] == ["task_completed", "task_submitted"]
    assert ids == [1, 2] and seen[-1]["conv_seq"] == 3
    problem(await api.get(url, params={"after": 99}), 409, "cursor-ahead")
    problem(await api.get(url, params={"after": "x"}), 400, "cursor-invalid")


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_pages_over_two_sessions_repeat_nothing(api: httpx2.AsyncClient, pool: Pool, limit: int) -> None:
    """Each session numbers its events from 1; pages use the numbering of the conversation."""
    root = (await run(api))["session_id"]
    await record(pool, root, *(Progress(message=f"first {number}") for number in range(12)))
    await end(pool, root, head="node-1")
    second = (await run(api, conversation_id=root))["session_id"]
    rows = [EventRow.of(ref(second, conversation_id=root), Progress(message=f"second {n}")) for n in range(12)]
    await events.append(pool, "", rows)
    seen: list[dict[str, Any]] = []
    while found := await page(api, root, limit=limit, after=seen[-1]["conv_seq"] if seen else 0):
        assert found["next_after"] == (found["items"][-1]["conv_seq"] if found["items"] else seen[-1]["conv_seq"])
        if not found["items"]:
            break
        seen += found["items"]
    assert [event["conv_seq"] for event in seen] == list(range(1, len(seen) + 1))
    said = [event["message"] for event in seen if event["type"] == "progress"]
    assert said == [f"{when} {number}" for when in ("first", "second") for number in range(12)]
