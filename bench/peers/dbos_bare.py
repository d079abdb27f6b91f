"""DBOS alone with PostgreSQL: like the bare loop, trivial steps that pass only a short text."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from dbos import DBOS, DBOSConfig

from bench.peers.script import Done


@DBOS.step()
async def model(word: str) -> str:
    return word


@DBOS.step()
async def tool(word: str) -> str:
    return word


@DBOS.workflow()
async def loop(steps: int) -> int:
    for number in range(steps):
        await model(f"step {number} of {steps}")
        await tool("short")
    await model(f"step {steps} of {steps}")
    return steps


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    DBOS(config=DBOSConfig(name="bare-loop", system_database_url=database))
    DBOS.launch()

    async def run(steps: int) -> Done:
        return Done(await loop(steps))

    try:
        yield run
    finally:
        DBOS.destroy()
