"""The whole stack is killed with -9 while tasks are running; the next start resumes all of them."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from deploy import local
from deploy.state import find_start
from tests.support.launch import connected, home, offline_model, settings_in, started
from tests.support.stack import Stack, calls, eventually, of_type


@pytest.mark.proves("F-09", "S1-05", "S3-B07")
async def test_next_start_resumes_every_task(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with home() as folder, offline_model(folder) as model_port:
        settings = settings_in(folder, model_port)
        async with started(settings, folder / "stack.log") as info, connected(settings, info) as stack:
            tasks = await _running(stack, ledger)
            await _kill_all(stack)
        async with started(settings, folder / "stack.log") as info, connected(settings, info) as again:
            for task_id in tasks:
                record = await again.wait(task_id, seconds=90)
                assert (record["status"], record["reason"]) == ("completed", "goal_reached")
                began = [event["step"] for event in of_type(await again.events(task_id), "step_started")]
                assert began == list(range(1, len(began) + 1))
            assert (await again.record(tasks[0]))["usage"]["tool_invocations"] == 12
    assert len((await asyncio.to_thread(ledger.read_text)).splitlines()) == 1


async def _running(stack: Stack, ledger: Path) -> list[str]:
    tasks = [
        await stack.submit('[[script:count n=12 tool=bash input={"command": "sleep 0.3"}]]'),
        await stack.submit("[[script:say words=30]] [[fault:hang after=6]]"),
        await stack.submit(calls(("ledger_once", {"path": str(ledger), "seconds": 50}))),
    ]
    await stack.seen(tasks[0], "step_started", step=3)
    await stack.seen(tasks[1], "message_delta")
    await eventually(lambda: asyncio.to_thread(ledger.exists))
    return tasks


async def _kill_all(stack: Stack) -> None:
    info = local.status(stack.settings)
    assert info is not None
    pids = [info.pid, *(part.pid for part in info.parts if part.pid)]
    assert len(pids) == 6
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # the supervisor's children may end with it
            os.kill(pid, signal.SIGKILL)

    async def gone() -> bool:
        return not any(map(find_start, pids))

    await eventually(gone, what="all processes are gone")
