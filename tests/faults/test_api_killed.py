"""kill -9 of the API while a stream is read: the reader resumes without gap or duplicate; the task is not affected."""

import asyncio
import json
import time
from typing import Any

import httpx2
import pytest

from tests.support.stack import Stack, check_events, eventually


async def follow(stack: Stack, task_id: str, seen: list[dict[str, Any]]) -> int:
    """Read as a browser does: reconnect after each break, from the last id on, until the terminal event."""
    give_up, breaks = time.monotonic() + 60, 0
    while not (seen and seen[-1]["type"].startswith("task_") and seen[-1]["seq"] > 2):
        assert time.monotonic() < give_up
        headers = {"Last-Event-ID": str(seen[-1]["seq"])} if seen else {}
        try:
            async with (
                httpx2.AsyncClient(base_url=stack.url, timeout=10) as http,
                http.stream("GET", f"/tasks/{task_id}/events", headers=headers) as stream,
            ):
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        seen.append(json.loads(line[6:]))
        except httpx2.TransportError:
            breaks += 1
            await asyncio.sleep(0.1)
    return breaks


@pytest.mark.proves("S1-20")
async def test_a_reader_resumes_after_the_api_was_killed(stack: Stack) -> None:
    task_id = await stack.submit("[[script:say words=150 delay=0.1]]")
    seen: list[dict[str, Any]] = []
    reading = asyncio.create_task(follow(stack, task_id, seen))
    await stack.seen(task_id, "message_delta")

    async def read_some() -> bool:
        return len(seen) >= 6

    await eventually(read_some, pause=0.02)
    await stack.back("api", await stack.kill("api"))
    assert await reading > 0, "the stream was never broken"
    check_events(seen)
    assert seen == await stack.events(task_id)
    assert seen[-1]["type"] == "task_completed"
    assert (await stack.record(task_id))["usage"]["llm_calls"] == 1  # the model call was not interrupted
