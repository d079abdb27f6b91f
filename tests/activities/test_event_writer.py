"""The event writer: a quick call's events wait for its commit instead of taking a transaction of their own."""

import asyncio

import pytest

from activities import event_writer
from activities.event_writer import EventWriter
from domain.events import ToolCalled
from domain.session import SessionRef
from tests.stack import Stack


async def test_a_commit_takes_along_what_came_just_before(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "GATHER", 60.0)  # as long as a busy machine may need
    ref = SessionRef(tenant="default", session_id="quick", conversation_id="quick")
    async with EventWriter(stack.pool) as writer:
        writer.put(ref, ToolCalled(tool="read_file", args="read notes.txt"))
        for _ in range(5):  # whoever writes at once has begun by now
            await asyncio.sleep(0)
        [row] = await writer.take(ref)
    assert row["type"] == "tool_called"
