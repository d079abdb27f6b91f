"""A contestant that needs no installed peer: the bare loop on the bare worker. One task length is too long for it."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from temporalio.client import Client

from bench.bare import MODEL, QUEUE
from bench.peers.script import Done

TOO_LONG = 7


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    client = await Client.connect(temporal)

    async def run(steps: int) -> Done:
        if steps == TOO_LONG:
            raise RuntimeError("too long") from ValueError(f"{steps} steps are too many")
        name = f"own/{uuid.uuid4()}"
        await client.execute_workflow("BareLoop", args=[steps, MODEL], id=name, task_queue=QUEUE)
        return Done(steps if database else 0, name)

    yield run
