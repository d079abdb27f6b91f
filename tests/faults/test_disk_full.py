"""The disk is full: callers and operators are informed, nothing accepted is lost, and work resumes with free space."""

import asyncio

import pytest

from deploy import local
from tests.faults import disk
from tests.faults.caller import Caller
from tests.support.command import cli
from tests.support.stack import Stack, eventually

LONG = "x" * 150_000  # needs pages that the database does not have yet


async def test_full_disk_is_reported_and_loses_nothing() -> None:
    try:
        async with disk.on_small_disk() as stack, Caller(stack.url) as caller:
            await _fill_and_free(stack, caller)
    except disk.CannotMount as error:
        pytest.skip(f"needs a small file system of its own: {error}")


async def _fill_and_free(stack: Stack, caller: Caller) -> None:
    before = await caller.submit("before", "[[script:say words=60 delay=0.1]]")
    await asyncio.to_thread(disk.fill, stack)
    try:
        accepted, details = [before.id], set()

        async def refused() -> bool:
            answer = await stack.http.post("/tasks", json={"agent": "tester", "input": f"[[script:say text=x]] {LONG}"})
            if answer.status_code == 202:
                accepted.append(answer.json()["task_id"])
                return False
            assert answer.status_code == 503 and answer.headers["retry-after"], answer.text
            details.add(answer.json()["detail"])
            return "The disk of the database is full; free some space there." in details

        await eventually(refused, what="a problem names the disk")
        info = await asyncio.to_thread(local.status, stack.settings)
        assert info is not None and info.disk_full
        shown = await cli(stack, "status")
        assert shown.exit_code == 1 and f"the disk is full: 0 MB are left at {stack.root}" in shown.stderr
    finally:
        disk.empty(stack)
    for task_id in accepted:
        record = await caller.ended(task_id, 120)
        assert record is not None and record["status"] == "completed", record
    assert (await stack.run("[[script:say text=again]]"))["status"] == "completed"
