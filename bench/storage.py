"""What a session stores by table, with the pieces of its text until they are deleted; and what a large file costs in
PostgreSQL, beside the same bytes in a file: `python -m bench.storage`."""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

import click

from bench import cpu, scratch
from bench.lab import Lab, open_lab
from store import files

TENANT = "default"
LENGTH = 600  # of the streamed answer, three to a delta
LARGE = 20_000_000  # bytes, the largest file of a workspace that is stored unless a setting says otherwise


@dataclass(frozen=True)
class StorageFigures:
    tables: dict[str, int]  # bytes of the rows of one streamed session, without indexes
    pieces: int  # rows of pieces of the text, which are deleted after the end
    piece_bytes: int
    whole_bytes: int  # the message with the whole text
    write_ms: float
    read_ms: float
    write_cpu_ms: float  # of PostgreSQL
    read_cpu_ms: float
    file_write_ms: float  # the same bytes written to a file and flushed to the disk


async def measure(lab: Lab, length: int = LENGTH, large: int = LARGE) -> StorageFigures:
    task_id = await lab.ours.submit(f"[[script:say words={length} delay=0.05]]", 2)
    await lab.ours.await_closing(task_id)
    tables = await scratch.session_bytes(lab.pool, TENANT, task_id)
    _, whole = await scratch.event_bytes(lab.pool, TENANT, task_id, "message")
    pieces = await scratch.event_bytes(lab.pool, TENANT, task_id, "message_delta")
    content = os.urandom(large)

    def busy() -> float:
        return cpu.seconds([lab.pids["postgres"]])

    spent, began = busy(), time.perf_counter()
    [digest] = await files.put_blobs(lab.pool, TENANT, [content])
    written, write_cpu = time.perf_counter() - began, busy() - spent
    spent, began = busy(), time.perf_counter()
    await files.get_blobs(lab.pool, TENANT, [digest])
    read, read_cpu = time.perf_counter() - began, busy() - spent
    began = time.perf_counter()
    await asyncio.to_thread(_write, lab.settings.workspaces_dir.parent / "large", content)
    beside = time.perf_counter() - began
    millis = [taken * 1_000 for taken in (written, read, write_cpu, read_cpu, beside)]
    return StorageFigures(tables, *pieces, whole, *millis)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def as_text(found: StorageFigures) -> str:
    tables = ", ".join(f"{name} {size:,}" for name, size in found.tables.items() if size)
    return (
        f"rows of a session with one streamed answer, bytes: {tables}\n"
        f"pieces of the text: {found.pieces} rows with {found.piece_bytes:,} bytes, the text {found.whole_bytes:,}\n"
        f"a file of {LARGE // 10**6} MB in PostgreSQL: written in {found.write_ms:.0f} ms "
        f"({found.write_cpu_ms:.0f} ms of its CPU), read in {found.read_ms:.0f} ms ({found.read_cpu_ms:.0f}); "
        f"as a file written in {found.file_write_ms:.0f} ms"
    )


@click.command()
def main() -> None:
    """Measure on a separate stack."""

    async def run() -> StorageFigures:
        async with open_lab() as lab:
            return await measure(lab)

    click.echo(as_text(asyncio.run(run())))


if __name__ == "__main__":
    main()
