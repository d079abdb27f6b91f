"""Workspaces: files of one worker are available on another, lost local files are restored, no path leads out, and
sizes are limited."""

import asyncio
import contextlib
import ctypes
import os
import resource
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.workspaces import WorkspaceCaps, Workspaces, stays_inside
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

    await eventually(lambda: asyncio.to_thread(ledger.exists))
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
    one, two, space = Workspaces(stack.pool, tmp_path / "one"), Workspaces(stack.pool, tmp_path / "two"), new_id()
    here, there = await ready(one, stack, space), await ready(two, stack, space)
    (here / "a.txt").write_text("first")
    await one.keep("default", space)
    assert await ready(two, stack, space) == there and (there / "a.txt").read_text() == "first"

    (here / "b.txt").write_text("from one")
    (there / "c.txt").write_text("from two")
    (there / "a.txt").write_text("second")
    await one.keep("default", space)
    await two.keep("default", space)
    for folder in (await ready(one, stack, space), await ready(two, stack, space)):
        found = {path.name: path.read_text() for path in sorted(folder.iterdir())}
        assert found == {"a.txt": "second", "b.txt": "from one", "c.txt": "from two"}

    (here / "a.txt").unlink()
    await one.keep("default", space)
    assert not (await ready(two, stack, space) / "a.txt").exists()


SECRET = b"not of this workspace"
NAMES = [f"file{number}" for number in range(20)]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Create a folder on the host whose files have the same names as those of the workspace."""
    place = tmp_path / "outside"
    place.mkdir()
    for name in NAMES:
        (place / name).write_bytes(SECRET)
        (place / name).chmod(0o600)
    return place


def untouched(outside: Path) -> bool:
    found = {path.name: (path.read_bytes(), path.stat().st_mode & 0o777) for path in outside.iterdir()}
    return found == dict.fromkeys(NAMES, (SECRET, 0o600))


async def ready(worker: Workspaces, stack: Stack, space: str) -> Path:
    version, _ = await workspaces.get(stack.pool, "default", space)
    return await worker.ready("default", space, version)


async def two_workers_with(stack: Stack, tmp_path: Path) -> tuple[Workspaces, Workspaces, str]:
    """Both folders have the same files below `d`."""
    one, two = Workspaces(stack.pool, tmp_path / "one"), Workspaces(stack.pool, tmp_path / "two")
    space = new_id()
    here = await ready(one, stack, space)
    (here / "d").mkdir()
    for name in NAMES:
        (here / "d" / name).write_text("kept")
    await one.keep("default", space)
    await ready(two, stack, space)
    return one, two, space


@pytest.mark.parametrize("how", ["delete", "write"])
async def test_restore_goes_through_no_folder_that_became_a_link(
    stack: Stack, tmp_path: Path, outside: Path, how: str
) -> None:
    one, two, space = await two_workers_with(stack, tmp_path)
    here, there = await ready(one, stack, space), await ready(two, stack, space)
    if how == "delete":
        shutil.rmtree(here / "d")
    else:
        for name in NAMES:
            (here / "d" / name).write_text("changed")
            (here / "d" / name).chmod(0o777)
    await one.keep("default", space)
    shutil.rmtree(there / "d")
    (there / "d").symlink_to(outside)
    await ready(two, stack, space)
    assert untouched(outside)


EXCHANGE = 2  # flag of renameat2: exchange two names atomically


@contextlib.contextmanager
def swapping(folder: Path, outside: Path) -> Iterator[list[int]]:
    """A hostile command: it swaps `folder` with a link to the outside, thousands of times a second."""
    stop, swaps = threading.Event(), [0]
    other = folder.with_name("other")
    libc = ctypes.CDLL(None, use_errno=True)

    def swap() -> None:
        while not stop.is_set():
            # a restore replaced the link by a folder: create the link again
            if not other.is_symlink() and not folder.is_symlink():
                shutil.rmtree(other, ignore_errors=True)
                with contextlib.suppress(OSError):
                    other.symlink_to(outside)
            for _ in range(50):
                done = libc.renameat2(-100, os.fsencode(other), -100, os.fsencode(folder), EXCHANGE)
                swaps[0] += done == 0

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield swaps
    finally:
        stop.set()
        thread.join()


async def test_swapped_folder_lets_nothing_outside_be_touched_or_kept(
    stack: Stack, tmp_path: Path, outside: Path
) -> None:
    one, two, space = await two_workers_with(stack, tmp_path)
    there = await ready(two, stack, space)
    with swapping(there / "d", outside) as swaps:
        for turn in range(40):
            here = await ready(one, stack, space)
            (here / "d").mkdir(exist_ok=True)
            for place, name in enumerate(NAMES):
                file = here / "d" / name
                if (turn + place) % 3:
                    file.write_text(f"turn {turn}")
                    file.chmod(0o777 if turn % 2 else 0o644)
                else:
                    file.unlink(missing_ok=True)
            await one.keep("default", space)
            await ready(two, stack, space)
            await two.keep("default", space)
    assert swaps[0] > 500
    assert await asyncio.to_thread(untouched, outside)
    kept = await stack.pool.fetchval("SELECT count(*) FROM blobs WHERE content = $1", SECRET)
    assert kept == 0


MB = 1_000_000


class Pair:
    """A workspace on two workers."""

    def __init__(self, stack: Stack, tmp_path: Path, caps: WorkspaceCaps | None = None, tenant_bytes: int = 0) -> None:
        self._pool = stack.pool
        self.one = Workspaces(stack.pool, tmp_path / "one", caps, tenant_bytes)
        self.two = Workspaces(stack.pool, tmp_path / "two", caps, tenant_bytes)
        self.tenant = f"t-{new_id()}"
        self.space = new_id()

    async def ready(self, worker: Workspaces) -> Path:
        version, _ = await workspaces.get(self._pool, self.tenant, self.space)
        return await worker.ready(self.tenant, self.space, version)

    async def here(self) -> Path:
        return await self.ready(self.one)

    async def keep(self) -> dict[str, str]:
        return (await self.one.keep(self.tenant, self.space)).skipped

    async def there(self) -> Path:
        return await self.ready(self.two)


def tree(folder: Path) -> dict[str, tuple[str, int, bytes | str]]:
    found: dict[str, tuple[str, int, bytes | str]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", 0, os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", path.stat().st_mode & 0o777, "")
        else:
            found[name] = ("file", path.stat().st_mode & 0o777, path.read_bytes())
    return found


async def test_files_folders_links_modes_and_holes_are_the_same_on_another_worker(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path)
    here = await pair.here()
    (here / "a/b/empty").mkdir(parents=True)
    (here / "a/b").chmod(0o750)
    (here / "a/run.sh").write_text("#!/bin/sh\n")
    (here / "a/run.sh").chmod(0o755)
    (here / "nothing").touch()
    (here / "a/b/up").symlink_to("../run.sh")
    (here / "dangling").symlink_to("later")
    with (here / "holes").open("wb") as file:
        file.write(b"head")
        file.seek(5 * MB)
        file.write(b"middle")
        file.truncate(9 * MB)
    with (here / "only a hole").open("wb") as file:
        file.truncate(3 * MB)
    assert await pair.keep() == {}
    there = await pair.there()
    assert tree(there) == tree(here) and len(tree(there)) == 9
    assert (there / "holes").stat().st_blocks * 512 < MB

    # each entry changes its type, and one changes only its mode
    shutil.rmtree(here / "a/b")
    (here / "a/b").write_text("a file now")
    (here / "dangling").unlink()
    (here / "dangling").mkdir()
    (here / "dangling/x").write_text("below what was a link")
    (here / "nothing").unlink()
    (here / "nothing").symlink_to("a/run.sh")
    (here / "a/run.sh").chmod(0o600)
    assert await pair.keep() == {}
    assert tree(await pair.there()) == tree(here)


async def test_file_that_grows_over_the_cap_keeps_its_former_version(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path, WorkspaceCaps(file_bytes=1_000, files=20, workspace_bytes=3_000))
    here = await pair.here()
    (here / "grows").write_text("small")
    (here / "gone").write_text("soon")
    assert await pair.keep() == {}
    (here / "grows").write_bytes(os.urandom(1_001))
    (here / "gone").unlink()
    (here / "large").write_bytes(os.urandom(1_001))
    skipped = await pair.keep()
    assert set(skipped) == {"grows", "large"} and "1,000 bytes" in skipped["grows"]
    assert await pair.keep() == {}  # a skipped file is reported once
    assert {path: entry[2] for path, entry in tree(await pair.there()).items()} == {"grows": b"small"}
    assert (here / "grows").stat().st_size == 1_001  # the worker that wrote the file still has it

    for number in range(4):
        (here / f"part{number}").write_bytes(os.urandom(900))
    skipped = await pair.keep()
    assert list(skipped) == ["part3"] and "3,000 bytes" in skipped["part3"]
    (here / "part0").unlink()  # this makes room for part3
    assert await pair.keep() == {}
    assert set(tree(await pair.there())) == {"grows", "part1", "part2", "part3"}


async def test_sparse_files_cost_neither_memory_nor_the_event_loop(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path)
    here = await pair.here()
    for number in range(120):
        with (here / f"sparse{number}").open("wb") as file:
            file.truncate(19 * MB)
            file.write(str(number).encode())
    for number in range(12):
        (here / f"dense{number}").write_bytes(os.urandom(10 * MB))
    longest, before = 0.0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    keeping = asyncio.create_task(pair.keep())
    while not keeping.done():
        started = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - started)
    assert await keeping == {}
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 200, f"{grown:.0f} MB"
    assert longest < 1, f"{longest:.1f} s without a heartbeat"
    assert await stack.pool.fetchval("SELECT sum(size) FROM blobs WHERE tenant = $1", pair.tenant) < 130 * MB
    there = await pair.there()
    assert (there / "sparse7").read_bytes() == (here / "sparse7").read_bytes()


async def test_a_tenant_has_a_quota_of_all_its_workspaces(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path, tenant_bytes=10_000)
    here = await pair.here()
    (here / "first").write_bytes(os.urandom(6_000))
    assert await pair.keep() == {}
    (here / "first").write_bytes(os.urandom(6_000))
    skipped = await pair.keep()
    assert list(skipped) == ["first"] and "ERRAND_TENANT_WORKSPACE_BYTES" in skipped["first"]
    (here / "second").write_bytes(os.urandom(3_000))
    assert await pair.keep() == {}
    assert await workspaces.bytes_of_tenant(stack.pool, pair.tenant) == 9_000
    (here / "second").write_bytes(b"")  # the earlier version still counts: a rerun may need it
    assert await pair.keep() == {}
    assert await workspaces.bytes_of_tenant(stack.pool, pair.tenant) == 9_000


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("a", "b", True),
        ("d/a", "../b", True),
        ("d/a", "../../b", False),
        ("a", "..", False),
        ("d/a", "..", True),
        ("a", "/etc/passwd", False),
        ("d/a", "x/../../y", False),
        ("d/a", "x/..", False),
        ("a", "", False),
        ("a", "x" * 5_000, False),
    ],
)
def test_links_that_may_lead_out_are_recognised(path: str, target: str, inside: bool) -> None:
    assert stays_inside(path, target) is inside


async def test_a_link_that_leads_out_is_neither_kept_nor_followed(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path)
    here = await pair.here()
    (here / "out").symlink_to("/etc/passwd")
    (here / "d").symlink_to("/etc")
    skipped = await pair.keep()
    assert set(skipped) == {"out", "d"} and "leads out" in skipped["out"]
    assert tree(await pair.there()) == {}
