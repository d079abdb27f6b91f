"""The lab: a separate embedded stack in a temporary folder, with the bare loop's worker beside ours."""

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from bench import cpu
from bench.bare import MODEL, MODEL_CALL, QUEUE
from bench.ours import PATIENCE, Ours
from deploy import local
from deploy.child import Part, spawn, tail
from deploy.stack import OFFLINE_KEY, variables
from deploy.state import StackError, StackInfo
from deploy.temporal import CONNECTION
from domain.ids import new_id
from settings import ROOT, Settings
from store.database import Pool, connect


@dataclass(frozen=True)
class Lab:
    ours: Ours
    api: httpx2.AsyncClient
    temporal: Client
    pool: Pool
    pids: dict[str, int]
    database_url: str
    model_url: str
    settings: Settings

    async def bare(self, steps: int, model: str = MODEL, workflow: str = "BareLoop") -> str:
        """Run one whole bare loop; returns its workflow id."""
        name = f"bare/{new_id()}"
        async with asyncio.timeout(PATIENCE):
            await self.temporal.execute_workflow(workflow, args=[steps, model], id=name, task_queue=QUEUE)
        return name

    def cpu(self, worker: str) -> float:
        """CPU seconds so far of this worker, the Temporal server and PostgreSQL."""
        return cpu.seconds(self.pids[part] for part in (worker, "temporal", "postgres"))


@asynccontextmanager
async def open_lab(**more: Any) -> AsyncIterator[Lab]:
    """`more`: settings of the stack."""
    with tempfile.TemporaryDirectory(prefix="errand-bench-") as folder:
        os.chmod(folder, 0o711)  # PostgreSQL may run as another account, which has to pass
        settings = Settings(
            data_dir=Path(folder, "data"),
            workspaces_dir=Path(folder, "workspaces"),
            port=0,
            max_children=200,
            tools_module="bench.look_tool",
            **more,
        )
        async with _stack(settings, Path(folder)) as info, _bare_worker(settings, info, Path(folder)) as bare:
            client = await Client.connect(info.temporal_address, data_converter=pydantic_data_converter)
            api = httpx2.AsyncClient(base_url=info.api_url, timeout=PATIENCE)
            async with api, await connect(url := local.database_url(settings)) as pool:
                pids = {part.name: part.pid for part in info.parts if part.pid} | {"bare": bare.pid}
                lab = Lab(Ours(api, client), api, client, pool, pids, url, _model(info), settings)
                await _warm_up(lab)
                yield lab


@asynccontextmanager
async def _stack(settings: Settings, folder: Path) -> AsyncIterator[StackInfo]:
    """`errand up` in a separate process, so that the CPU of its supervisor is not counted."""
    async with process("stack", "deploy.local", variables(settings), folder) as stack:
        for _ in range(1_800):
            info = await asyncio.to_thread(local.status, settings)
            if info and info.ready:
                yield info
                return
            if stack.returncode is not None:
                break
            await asyncio.sleep(0.1)
        raise StackError(f"the stack did not start. Its log ends:\n{tail(folder / 'stack.log', 25)}")


@asynccontextmanager
async def _bare_worker(settings: Settings, info: StackInfo, folder: Path) -> AsyncIterator[Process]:
    settings = replace(
        settings, temporal_address=info.temporal_address, anthropic_base_url=_model(info), anthropic_api_key=OFFLINE_KEY
    )
    async with process("bare", "bench.bare_worker", variables(settings), folder) as bare:
        yield bare


def _model(info: StackInfo) -> str:
    return next(part.address for part in info.parts if part.name == "model")


@asynccontextmanager
async def process(name: str, module: str, env: dict[str, str], folder: Path) -> AsyncIterator[Process]:
    """Start a process that ends when we end, even by a kill, without our environment: no key, no other Temporal."""
    env = CONNECTION | {"PATH": os.defpath, "PYTHONPATH": str(ROOT)} | env
    part = Part(name=name, argv=[sys.executable, "-m", module], env=env, inherit=False, death_signal=signal.SIGTERM)
    process = await spawn(part, folder / f"{name}.log")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _warm_up(lab: Lab) -> None:
    """Wait until both workers are up and have run all their code, before anything is measured."""
    for _ in range(300):
        if (await lab.api.get("/readyz")).is_success:
            break
        await asyncio.sleep(0.1)
    await lab.ours.define_looker()
    for _ in range(3):
        await lab.ours.check(await lab.ours.count(3, grow=1024), 3)
        await lab.bare(3)
        await lab.bare(3, workflow="BareLoopUnsandboxed")
        await lab.bare(3, MODEL_CALL)
