"""Storing a workspace keeps within its limits of memory, time and size, and never loses earlier stored files."""

import asyncio
import os
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from activities.workspaces import WorkspaceCaps, Workspaces, WorkspaceScan, extents_of, stays_inside
from domain.ids import new_id
from store import workspaces
from tests.support.stack import Stack

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


async def test_too_many_files_do_not_replace_stored_ones(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path, WorkspaceCaps(files=50))
    here = await pair.here()
    for number in range(40):
        (here / f"z{number:02}").write_text("kept")
    assert await pair.keep() == {}
    for number in range(300):  # these names sort before the stored ones, and are more than one scan reads
        (here / f"a{number:03}").write_text("too many")
    skipped = await pair.keep()
    assert any("50 files" in why for why in skipped.values())
    names = {path.name for path in (await pair.there()).iterdir()}
    assert {f"z{number:02}" for number in range(40)} <= names and len(names) == 50


async def test_lost_directory_does_not_delete_stored_files(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path)
    here = await pair.here()
    (here / "precious").write_text("kept")
    await pair.keep()
    shutil.rmtree(here)
    await pair.keep()
    assert (await pair.there() / "precious").read_text() == "kept"
    assert (await pair.here() / "precious").read_text() == "kept"


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


async def test_unchanged_files_are_not_read_again(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree of a real `npm install`: thousands of small files, of which one changes."""
    pair = Pair(stack, tmp_path)
    here = await pair.here()
    for package in range(300):
        folder = here / f"node_modules/package{package}/lib"
        folder.mkdir(parents=True)
        for number in range(10):
            (folder / f"module{number}.js").write_text(f"// {package} {number}\n" * 20)
    await asyncio.sleep(0.1)
    started = time.monotonic()
    assert await pair.keep() == {}
    first = time.monotonic() - started
    read: list[str] = []
    reads = WorkspaceScan._read

    def counted(scan: WorkspaceScan, path: str) -> Any:
        read.append(path)
        return reads(scan, path)

    monkeypatch.setattr(WorkspaceScan, "_read", counted)
    changed = here / "node_modules/package7/lib/module3.js"
    info = changed.stat()
    changed.write_text("// x" + changed.read_text()[4:])  # same size, and the modification time is set back
    os.utime(changed, ns=(info.st_atime_ns, info.st_mtime_ns))
    started = time.monotonic()
    assert await pair.keep() == {}
    assert read == ["node_modules/package7/lib/module3.js"]
    assert time.monotonic() - started < max(2, first)
    assert (await pair.there() / "node_modules/package7/lib/module3.js").read_text().startswith("// x")


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


async def test_two_workers_on_one_directory_share_an_index(stack: Stack, tmp_path: Path) -> None:
    pair = Pair(stack, tmp_path)
    other = Workspaces(stack.pool, tmp_path / "one")
    here = await pair.here()
    (here / "a").write_text("one")
    await pair.keep()
    assert await pair.ready(other) == here
    (here / "a").write_text("two")
    (here / "b").write_text("three")
    await asyncio.gather(pair.keep(), other.keep(pair.tenant, pair.space))
    (here / "a").unlink()
    await other.keep(pair.tenant, pair.space)
    await pair.keep()
    assert {path: entry[2] for path, entry in tree(await pair.there()).items()} == {"b": b"three"}


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


def test_a_file_with_many_holes_is_read_as_a_whole(tmp_path: Path) -> None:
    with (tmp_path / "comb").open("wb") as file:
        for tooth in range(400):
            file.seek(tooth * 131_072)
            file.write(b"x")
        size = file.tell()
    with (tmp_path / "comb").open("rb") as opened:
        assert extents_of(opened.fileno(), size) == [(0, size)]
