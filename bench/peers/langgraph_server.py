"""LangGraph's own server (langgraph-api), called over HTTP: a thread and a run, with checkpoints in PostgreSQL.

Of its runtimes PyPI has only the one for development, which keeps threads, runs and the queue in memory; the one that
keeps them in PostgreSQL and Redis comes as a container image and starts with a licence key. So the server's checkpoints
are given to LangGraph's PostgreSQL saver here, as its configuration allows, and the rest stays in memory.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from bench.peers.asking import text_of
from bench.peers.script import Done, counted, prompt

SERVER = Path(__file__).with_name("langgraph_serve.py")
STARTS_WITHIN = 90.0
DATABASE = Path("langgraph-database")  # a file in our own folder with the database's address, which has a password


@asynccontextmanager
async def contestant(temporal: str, database: str) -> AsyncIterator[Callable[[int], Awaitable[Done]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    await asyncio.to_thread(DATABASE.write_text, database)
    server = await asyncio.create_subprocess_exec(sys.executable, "-P", str(SERVER), str(port))
    try:
        client = get_client(url=f"http://127.0.0.1:{port}", timeout=600)
        await _answers(client, server)

        async def run(steps: int) -> Done:
            thread = await client.threads.create()
            ended = await client.runs.wait(
                thread["thread_id"],
                "loop",
                input={"messages": [{"role": "user", "content": prompt(steps)}]},
                config={"recursion_limit": 2 * steps + 10},
                durability="sync",
            )
            return Done(counted(text_of(ended["messages"][-1]["content"])))

        yield run
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


async def _answers(client: LangGraphClient, server: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(STARTS_WITHIN):
        while server.returncode is None:
            try:
                await client.http.get("/ok")
                return
            except Exception:
                await asyncio.sleep(0.2)
    raise RuntimeError("the server did not start")
