"""What a program leaves in its folder is removed, however it is built."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from activities.mcp.program import empty_place
from activities.sandbox import Commands, Refusing

COMMANDS = Commands(Refusing("no sandbox in this test", "Give one"))
DEPTH = 1_500


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


async def test_folders_of_killed_workers_are_removed_and_of_others_kept(place: Path) -> None:
    old, new = place / "errand-mcp-old", place / "errand-mcp-new"
    for one in (old, new):
        (one / "x").mkdir(parents=True)
    os.utime(old, (0, 0))
    async with empty_place(COMMANDS):
        assert not old.exists() and new.exists()
