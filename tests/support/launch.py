"""Starts the processes that the tests run against, so that none of them can outlive the tests."""

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import asyncpg
import httpx2
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from deploy import local
from deploy.child import enter, tail
from deploy.postgres import WORKER_ROLE
from deploy.stack import variables
from deploy.state import StackInfo
from deploy.temporal import CONNECTION
from domain.ids import new_id
from settings import ROOT, Settings
from store.database import connect
from tests.support.stack import Stack, eventually

MODEL_KEY = "sk-canary-6f1d0c9a"  # must not appear in any file, table, log or event
SECRET_KEYS = ("test:" + "A" * 43 + "=",)
TESTER = {
    "name": "tester",
    "description": "Does what the offline model's scripts say.",
    "tools": [
        *("list_files", "read_file", "write_file", "bash", "update_plan", "report_progress", "save_artifact"),
        *("ledger_once", "ledger_again", "explode"),
    ],
    "prompt": "You are tested.",
}


def free_port() -> int:
    """A port below those of outgoing connections, one of which could take it before its server starts."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            port = 10_000 + secrets.randbelow(22_000)
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def process(argv: Sequence[str], log: Path, env: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A child process that is stopped at the end; if the tests are killed, the system ends it."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=partial(enter, {**env, "PYTHONPATH": str(ROOT)}, os.getpid(), signal.SIGTERM),
        )
    try:
        yield child
    finally:
        child.terminate()
        child.wait(60)


@asynccontextmanager
async def running(argv: Sequence[str], log: Path, env: Mapping[str, str]) -> AsyncIterator["subprocess.Popen[bytes]"]:
    """The same, but its end is not waited for in the event loop, where the servers may run that it takes leave of."""
    with ExitStack() as processes:
        child = processes.enter_context(process(argv, log, env))
        try:
            yield child
        finally:
            await asyncio.to_thread(processes.close)


@contextmanager
def second_worker(stack: Stack, folder: Path) -> Iterator[None]:
    """Another worker of the stack, which shares no directory with the first."""
    settings = replace(
        stack.settings,
        database_url=as_role(stack, stack.database_url, WORKER_ROLE),
        temporal_address=stack.temporal_address,
        workspaces_dir=folder / "workspaces-of-the-second",
        drain_seconds=1.0,
    )
    env = variables(settings) | CONNECTION
    with process([sys.executable, "worker.py"], folder / "second-worker.log", env):
        yield


@contextmanager
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="errand-test-"))
    folder.chmod(0o711)  # PostgreSQL may run under another account, which must be able to enter the folder
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings_in(folder: Path, model_port: int) -> Settings:
    return Settings(
        prices_file=_prices(folder),
        data_dir=folder / "data",
        workspaces_dir=folder / "workspaces",
        port=free_port(),
        secret_keys=SECRET_KEYS,
        default_cost_usd=0,  # no limit: scripts of thousands of steps are priced like a real model
        anthropic_api_key=MODEL_KEY,
        anthropic_base_url=f"http://127.0.0.1:{model_port}",
        openai_api_key=MODEL_KEY,
        openai_base_url=f"http://127.0.0.1:{model_port}/v1",
        providers=_providers(model_port),
        tools_module="tests.faults.ledger",
        # needed by the program of an MCP server
        sandbox_folders=(sys.prefix, sys.base_prefix, str(Path(__file__).parent)),
        sandbox_network="on",  # only to the port below, on which nothing but network tests listens
        allow_private_hosts=(f"127.0.0.1:{free_port()}", f"127.0.0.1:{model_port}"),  # the latter for its pages
        notify_private_hosts=("127.0.0.1",),  # where the receivers of the tests listen
        variables=(*(f"LEVEL_{number}=deployment" for number in (3, 4, 5)), "SHORT_1=7q"),
        smtp_host="127.0.0.1",
        slack_url=f"http://127.0.0.1:{free_port()}/api/",
        smtp_port=free_port(),
        smtp_tls="none",
    )


def _providers(model_port: int) -> str:
    """A provider whose key is refused, one at which nobody speaks its form, and two for an endpoint of a test."""
    address, judge = f"http://127.0.0.1:{model_port}", f"http://127.0.0.1:{free_port()}"
    return json.dumps(
        {
            "locked": {"kind": "openai", "base_url": f"{address}/v1", "key": "invalid"},
            "mistaken": {"kind": "anthropic", "base_url": f"{address}/nowhere", "key": "x"},
            "judged-gpt": {"kind": "openai", "base_url": f"{judge}/v1"},
            "judged-claude": {"kind": "anthropic", "base_url": judge},
        }
    )


def _prices(folder: Path) -> Path:
    """Write a price table with a model whose context window is small."""
    small = "models:\n  openai/gpt-4o: {input: 2.5, output: 10, cache_read: 1.25, cache_write: 2.5}\n"
    small += "  small-1: {input: 1, output: 1, cache_read: 1, cache_write: 1, context_window: 8000}\n"
    path = folder / "prices.yaml"
    path.write_text(small)
    return path


@contextmanager
def offline_model(folder: Path) -> Iterator[int]:
    """Run the offline model outside the stack, so that the worker's API key can be a canary."""
    port = free_port()
    with process([sys.executable, "-m", "offline", "--port", str(port)], folder / "model.log", {}):
        yield port


@asynccontextmanager
async def started(
    settings: Settings, log: Path, program: str = "deploy.local", env: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[StackInfo]:
    """`errand up` in the background, or another program that runs a stack; stopped at the end."""
    async with running([sys.executable, "-m", program], log, {**variables(settings), **env}) as child:

        async def look() -> StackInfo | None:
            assert child.poll() is None, tail(log, 30)
            info = await asyncio.to_thread(local.status, settings)
            return info if info and info.ready else None

        yield await eventually(look, seconds=180, what="the stack is up")


@asynccontextmanager
async def connected(settings: Settings, info: StackInfo) -> AsyncIterator[Stack]:
    client = await Client.connect(info.temporal_address, data_converter=pydantic_data_converter)
    http = httpx2.AsyncClient(base_url=info.api_url, timeout=30)
    async with http, await connect(local.database_url(settings)) as pool:
        stack = Stack(settings, info, http, client, pool)

        async def defined() -> bool:
            try:
                return (await http.put("/agents/tester", json=TESTER)).is_success
            except httpx2.TransportError:
                return False

        await eventually(defined, what="the worker has said which tools it has")
        yield stack


@asynccontextmanager
async def embedded() -> AsyncIterator[Stack]:
    with home() as folder, offline_model(folder) as model_port:
        settings = settings_in(folder, model_port)
        async with started(settings, folder / "stack.log") as info, connected(settings, info) as stack:
            yield stack


@asynccontextmanager
async def empty_database(url: str) -> AsyncIterator[str]:
    """Another database in the same PostgreSQL. No connection is kept, so that a restart in between does no harm."""
    name = f"test_{new_id()}"
    await _execute(url, f'CREATE DATABASE "{name}"')
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        await _execute(url, f'DROP DATABASE "{name}" WITH (FORCE)')


def as_role(stack: Stack, url: str, role: str) -> str:
    """The address of a database in the stack's PostgreSQL, for a process that connects with its own role."""
    password = (stack.root / f"{role}.password").read_text()
    return f"postgresql://{role}:{password}@{url.rpartition('@')[2]}"


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
