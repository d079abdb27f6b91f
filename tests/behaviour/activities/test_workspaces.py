"""Workspaces: files that one worker wrote are available on another, and lost local files are restored."""

import asyncio
import shutil
from pathlib import Path

from activities.workspaces import Workspaces
from domain.ids import new_id
from store import workspaces
from tests.support.stack import Stack, eventually, of_type, steps


async def test_a_lost_directory_is_restored_between_two_calls(stack: Stack, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    task_id = await stack.submit(
        steps(
            [("bash", {"command": "mkdir deep && echo precious > deep/file.txt && chmod 755 deep/file.txt"})],
            [("bash", {"command": "mkdir -m 700 empty && ln -s ../deep/file.txt empty/link && truncate -s 50M holes"})],
            [("ledger_again", {"path": str(ledger), "seconds": 3})],
            [("bash", {"command": "cat deep/file.txt && test -x deep/file.txt && echo runnable"})],
            [("bash", {"command": "stat -c '%n %a %s' empty holes && readlink empty/link"})],
        )
    )

    async def between() -> bool:
        return await asyncio.to_thread(ledger.exists)

    await eventually(between)
    await asyncio.to_thread(shutil.rmtree, stack.workspace(task_id).parent)
    assert (await stack.wait(task_id))["status"] == "completed"
    output = (await stack.result(task_id))["output"]
    assert "precious" in output and "runnable" in output
    assert "empty 700" in output and "holes 644 52428800" in output and "../deep/file.txt" in output


async def test_a_file_over_the_cap_is_in_the_result_and_an_event(stack: Stack) -> None:
    record = await stack.run(
        steps(
            [("bash", {"command": "head -c 21000000 /dev/urandom > large; ln -s /etc/passwd out; echo made"})],
            [("bash", {"command": "echo more >> large; stat -c %s large"})],
        )
    )
    assert record["status"] == "completed"
    # one event, not one after every call
    [event] = of_type(await stack.events(record["task_id"]), "workspace_not_kept")
    assert event["count"] == 2 and list(event["files"]) == ["large", "out"]
    first, second = [str(request["body"]["messages"][-1]) for request in (await stack.asked(record["task_id"]))[1:]]
    assert "made" in first and "Not kept" in first and "large: it has more than 20,971,520 bytes" in first
    assert "21000005" in second and "Not kept" not in second


async def test_two_workers_share_their_stored_workspaces(stack: Stack, tmp_path: Path) -> None:
    one, two = Workspaces(stack.pool, tmp_path / "one"), Workspaces(stack.pool, tmp_path / "two")
    space = new_id()

    async def ready(worker: Workspaces) -> Path:
        version, _ = await workspaces.get(stack.pool, "default", space)
        return await worker.ready("default", space, version)

    here, there = await ready(one), await ready(two)
    (here / "a.txt").write_text("first")
    await one.keep("default", space)
    assert await ready(two) == there and (there / "a.txt").read_text() == "first"

    (here / "b.txt").write_text("from one")
    (there / "c.txt").write_text("from two")
    (there / "a.txt").write_text("second")
    await one.keep("default", space)
    await two.keep("default", space)
    for folder in (await ready(one), await ready(two)):
        found = {path.name: path.read_text() for path in sorted(folder.iterdir())}
        assert found == {"a.txt": "second", "b.txt": "from one", "c.txt": "from two"}

    (here / "a.txt").unlink()
    await one.keep("default", space)
    assert not (await ready(two) / "a.txt").exists()
