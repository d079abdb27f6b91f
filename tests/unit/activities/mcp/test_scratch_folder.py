"""What a program leaves in its folder is removed, however it is built, and after a kill of its worker."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from activities.mcp import program
from activities.mcp.program import empty_place, remove_leftovers
from activities.sandbox import Commands, Refusing

COMMANDS = Commands(Refusing("no sandbox in this test", "Give one"))
DEPTH = 1_500
KILLED = """
import asyncio, os, runpy, signal, sys
scratch = runpy.run_path(sys.argv[1])  # alone, because its package takes long to import

async def run():
    async with scratch["scratch_folder"]() as folder:
        (folder / "left").write_text("x")
        folder.chmod(0)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(run())
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def held(place: Path) -> list[Path]:
    return list(place.iterdir())


def nest(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


async def test_deep_and_closed_folders_are_removed_beside_the_loop_and_no_link_is_followed(
    tmp_path: Path, place: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    outside.chmod(0o755)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with empty_place(COMMANDS) as one:
        nest(one.workspace)
        closed = one.workspace / "closed"
        closed.mkdir()
        (closed / "link").symlink_to(outside)
        closed.chmod(0o555)
        running = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = turns
    running.cancel()
    assert turns > before + 10
    assert not held(place)
    assert (outside / "kept").read_text() == "x" and outside.stat().st_mode & 0o777 == 0o755


async def test_folder_of_a_killed_worker_is_removed_and_that_of_a_living_one_is_not(place: Path) -> None:
    argv = [sys.executable, "-c", KILLED, program.__file__]
    killed = await asyncio.to_thread(subprocess.run, argv, check=False)
    assert killed.returncode == -9 and len(held(place)) == 1
    async with empty_place(COMMANDS) as living:
        (living.workspace / "used").write_text("x")
        await remove_leftovers()
        assert held(place) == [living.workspace] and (living.workspace / "used").exists()
    assert not held(place)
