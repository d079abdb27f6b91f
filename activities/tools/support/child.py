"""Runs a script of ours in a process that can be stopped: a regular expression, or a parser of hostile text."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path


@contextlib.asynccontextmanager
async def start_script(script: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The running script, which uses the standard library only. It is stopped on leaving, in every case."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(script), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.shield(process.wait())


async def run_script(script: Path, data: bytes, *, timeout_s: float) -> bytes:
    """The output of the script for `data`. Raises TimeoutError if it had to be stopped."""
    async with start_script(script) as process, asyncio.timeout(timeout_s):
        return (await process.communicate(data))[0]
