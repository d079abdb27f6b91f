"""Restoring and saving touch nothing outside the workspace, even while a command swaps folders for links."""

import asyncio
import contextlib
import ctypes
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.workspaces import Workspaces
from domain.ids import new_id
from store import workspaces
from tests.support.stack import Stack

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


def swap_for_link(folder: Path, outside: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(outside)


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


async def test_restore_does_not_delete_through_a_folder_that_became_a_link(
    stack: Stack, tmp_path: Path, outside: Path
) -> None:
    one, two, space = await two_workers_with(stack, tmp_path)
    here, there = await ready(one, stack, space), await ready(two, stack, space)
    shutil.rmtree(here / "d")
    await one.keep("default", space)
    swap_for_link(there / "d", outside)
    await ready(two, stack, space)
    assert untouched(outside)


async def test_restore_does_not_write_or_chmod_through_a_folder_that_became_a_link(
    stack: Stack, tmp_path: Path, outside: Path
) -> None:
    one, two, space = await two_workers_with(stack, tmp_path)
    here, there = await ready(one, stack, space), await ready(two, stack, space)
    for name in NAMES:
        (here / "d" / name).write_text("changed")
        (here / "d" / name).chmod(0o777)
    await one.keep("default", space)
    swap_for_link(there / "d", outside)
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
