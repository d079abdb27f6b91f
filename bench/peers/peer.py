"""The list of peers, the environment in which they are installed, and the process in which each of them runs."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.ours import PATIENCE
from bench.peers.script import Done
from deploy.child import enter, tail
from deploy.stack import OFFLINE_KEY
from deploy.state import StackError
from settings import ROOT

VENV = ROOT / ".venv-peers"
LOCK = "bench/peers/requirements.txt"
STARTS_WITHIN = 120.0
# nothing leaves this machine: no traces
QUIET = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1"}

ROWS = (
    "No server between the calls: the process that runs the loop writes the result of each step as one row, where "
    "Temporal records that a call was scheduled, started and completed, and hands it to any worker. But nothing "
    "outside that process times out a call or moves it elsewhere."
)
CHECKPOINTS = (
    "No server between the calls, and no history of them: the process that runs the loop writes a checkpoint after "
    "each node, with the whole list of messages. But nothing resumes a run whose process died; the caller "
    "has to."
)


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    note: str = ""

    @property
    def module(self) -> str:
        return f"bench.peers.{self.name}"


PEERS = (
    Peer("pydantic_ai_temporal", "pydantic-ai on Temporal"),
    Peer("openai_agents_temporal", "OpenAI Agents on Temporal"),
    Peer("langgraph_temporal", "LangGraph on Temporal"),
    Peer("langgraph_postgres", "LangGraph, PostgreSQL saver", CHECKPOINTS),
    Peer("pydantic_ai_dbos", "pydantic-ai on DBOS", ROWS),
)


class PeerFailed(Exception):
    """The peer did not reach the end of the loop; the message gives the reason."""


class Stage:
    """The process of one contestant, which runs until its stdin is closed."""

    def __init__(self, process: Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(self, steps: int) -> Done:
        done = Done(**await self.ask(steps, PATIENCE))
        if done.steps != steps:
            raise PeerFailed(f"ended after {done.steps} of {steps} steps")
        return done

    async def ask(self, request: object, seconds: float) -> dict[str, Any]:
        """Send one line and read one line."""
        assert self._process.stdin and self._process.stdout
        try:
            async with asyncio.timeout(seconds):
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except TimeoutError:
            self._process.kill()  # a late answer would be read as the answer to the next line
            raise PeerFailed(f"no end within {seconds:.0f} s") from None
        except ConnectionError:
            line = b""
        if not line:
            raise PeerFailed(f"its process has ended: {tail(self._log, 1).strip()}")
        answer: dict[str, Any] = json.loads(line)
        if reason := answer.get("failed"):
            raise PeerFailed(str(reason))
        return answer


@asynccontextmanager
async def stage(
    python: Path, module: str, temporal: str, database: str, model: str, log: Path, *, streamed: bool = False
) -> AsyncIterator[Stage]:
    """Start it without our environment; it ends when this process ends, even by a kill."""
    asking = {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": OFFLINE_KEY}  # the variables that every SDK reads
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(str(python), "-P", str(ROOT / "bench" / "peers" / "stage.py"), module),
            stdin=PIPE,
            stdout=PIPE,
            stderr=output,
            cwd=log.parent,
            env={"PATH": os.defpath, "HOME": str(log.parent)} | QUIET | asking,
            start_new_session=True,
            preexec_fn=partial(enter, {}, os.getpid(), signal.SIGKILL),
        )
    try:
        started = Stage(process, log)
        await started.ask({"temporal": temporal, "database": database, "streamed": streamed}, STARTS_WITHIN)
        yield started
    finally:
        assert process.stdin
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            process.kill()
            await process.wait()


async def install_peers() -> Path:
    """The python of the peers' environment, which is created on first use and whenever its lock file changes."""
    script = 'root=$1; ERRAND_VENV=$2; . "$1/scripts/venv.sh"; ensure_venv "$3"'
    made = await asyncio.create_subprocess_exec("sh", "-euc", script, "sh", str(ROOT), str(VENV), LOCK)
    if await made.wait():
        raise StackError(f"the peers could not be installed into {VENV}")
    return VENV / "bin" / "python"
