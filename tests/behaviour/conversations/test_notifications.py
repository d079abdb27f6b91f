"""One subscription for all events of a tenant: starts, ends, mailbox counts and changed conversations."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.support.stack import Stack, eventually


@pytest.mark.proves("S0-B16")
async def test_one_channel_notifies_of_all_sessions_and_conversations(stack: Stack) -> None:
    received: list[dict[str, Any]] = []
    listening = asyncio.Event()

    async def listen() -> None:
        async with (
            httpx2.AsyncClient(base_url=stack.url, timeout=None) as client,
            client.stream("GET", "/notifications") as answer,
        ):
            async for line in answer.aiter_lines():
                listening.set()
                if line.startswith("data:"):
                    received.append(json.loads(line[5:]))

    task = asyncio.create_task(listen())
    try:
        await asyncio.wait_for(listening.wait(), 10)
        done = await stack.run("[[script:say text=fine]]")
        failed = await stack.run("[[script:say text=never]] [[fault:auth times=always]]")
        answer = await stack.http.patch(f"/conversations/{done['task_id']}", json={"metadata": {"a": 1}, "title": "x"})
        assert answer.status_code == 200, answer.text

        def kinds(task_id: str) -> list[str]:
            return [one["type"] for one in received if task_id in (one.get("session_id"), one["conversation_id"])]

        wanted = ["session_started", "session_completed", "conversation_updated"]
        await eventually(lambda: _now(kinds(done["task_id"]) == wanted), what="every notice")
        await eventually(lambda: _now(kinds(failed["task_id"])[-1:] == ["session_failed"]), what="the failure")
        assert [one["changed"] for one in received if one["type"] == "conversation_updated"] == [["metadata", "title"]]
    finally:
        task.cancel()


async def _now(value: bool) -> bool:
    return value
