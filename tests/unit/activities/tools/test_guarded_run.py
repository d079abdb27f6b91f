"""The worker does not wait until the activity's timeout for a tool that ignores its cancellation."""

import asyncio
import contextlib
import time
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from activities.tools import guarded_run
from activities.tools.guarded_run import guarded
from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.redactor import Redactor
from domain.sessions.step import Effect

CONTEXT: Any = SimpleNamespace(state=SimpleNamespace(redactor=Redactor()))


class Input(BaseModel):
    pass


async def ignores(input: Input, context: ToolContext) -> ToolResult:
    until = time.monotonic() + 1
    while time.monotonic() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    return ToolResult("done")


def stubborn(timeout_s: float) -> Tool:
    return Tool(name="stubborn", description="x", input=Input, run=ignores, effect=Effect.READ, timeout_s=timeout_s)


async def test_tool_that_ignores_its_cancellation_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_run, "GRACE_SECONDS", 0.05)
    began = time.monotonic()
    late = await guarded(stubborn(0.05), Input(), CONTEXT, contextlib.nullcontext())
    assert late.failed and late.text == "stubborn did not finish within 0.05 seconds."
    stopped = asyncio.create_task(guarded(stubborn(60), Input(), CONTEXT, contextlib.nullcontext()))
    await asyncio.sleep(0.05)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    assert time.monotonic() - began < 0.8
