"""A stack on a separate small disk, and the fault that fills it. Mounting one needs root."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

from tests.support.launch import connected, home, offline_model, settings_in, started
from tests.support.stack import Stack

MEGABYTES = 400
BALLAST = "ballast"


class CannotMount(Exception):
    """This host or account cannot mount a file system."""


@contextmanager
def small_disk() -> Iterator[Path]:
    with home() as folder:
        # PostgreSQL may run under another account, which must be able to enter the folder
        options = f"size={MEGABYTES}m,mode=711"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        try:
            subprocess.run(mount, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotMount(getattr(error, "stderr", "") or str(error)) from None
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


@asynccontextmanager
async def on_small_disk() -> AsyncIterator[Stack]:
    """A disk for everything that the stack writes, except the model's log."""
    with tempfile.TemporaryDirectory() as other, small_disk() as folder, offline_model(Path(other)) as model_port:
        settings = settings_in(folder, model_port)
        log = Path(other) / "stack.log"
        async with started(settings, log) as info, connected(settings, info) as stack:
            yield stack


def fill(stack: Stack) -> None:
    disk = stack.root.parent
    with (disk / BALLAST).open("ab") as ballast:
        while free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize:
            try:
                os.posix_fallocate(ballast.fileno(), ballast.tell(), free)
                ballast.seek(0, os.SEEK_END)
            except OSError:  # other processes write at the same time
                continue


def empty(stack: Stack) -> None:
    (stack.root.parent / BALLAST).unlink(missing_ok=True)


async def fill_for_a_while(stack: Stack, random: Random) -> None:
    await asyncio.to_thread(fill, stack)
    try:
        await asyncio.sleep(random.uniform(2, 6))
    finally:
        empty(stack)
