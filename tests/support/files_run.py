"""Which product files run for one task: `python -m tests.support.files_run` beside a stack prints them in order.

API and worker run in this process, on a separate task queue.
"""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import httpx2
import uvicorn
from fastapi import FastAPI

import activities
import worker
from activities.events import EventWriter
from activities.sandbox import choose
from agents.loader import AgentFolder
from agents.problems import Catalogue
from api.app import create_app
from settings import ROOT, Settings
from store import database
from tests.support.launch import free_port
from tests.support.stack import eventually
from workflows import client

AIM = (60, 16)  # files of a task with one tool call, and before Temporal
# They run for every task or for none, whatever the task is.
BACKGROUND = frozenset({
    *("activities/notifications/dispatcher.py", "activities/dead_workers.py", "activities/sessions/sweep.py"),
    *("store/figures.py", "store/workers.py", "worker.py"),
    *("store/triggers.py", "api/http/metrics.py"),
})  # fmt: skip
_STARTS_A_WORKFLOW = frozenset({"start_workflow", "execute_update_with_start_workflow"})


@dataclass
class FilesRun:
    """Product files with at least one function that ran, in the order in which they were entered."""

    before_temporal: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    _names: dict[str, str | None] = field(default_factory=dict)
    _reached_temporal: bool = False

    def entered(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (code := frame.f_code).co_name == "<module>":
            return
        if code.co_name in _STARTS_A_WORKFLOW and "/temporalio/client/" in code.co_filename:
            self._reached_temporal = True
        if code.co_filename in self._names:
            return
        name = self._names[code.co_filename] = _product_file(code.co_filename)
        if name is not None:
            (self.after if self._reached_temporal else self.before_temporal).append(name)


def _product_file(filename: str) -> str | None:
    path = Path(filename)
    if not path.is_relative_to(ROOT):
        return None
    name = str(path.relative_to(ROOT))
    return None if name.startswith(("tests/", ".")) else name


@contextmanager
def recorded() -> Iterator[FilesRun]:
    """Record this thread from now on, and every thread that starts until the recording ends."""
    files = FilesRun()
    threading.setprofile(files.entered)
    sys.setprofile(files.entered)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def files_of(settings: Settings, prompt: str) -> FilesRun:
    """The files of one task, from the request until its result can be fetched."""
    assert settings.database_url
    app = create_app(settings)
    temporal = await client.connect()
    async with (
        await database.connect(settings.database_url) as pool,
        _served(app) as url,
        EventWriter(pool) as events,
        httpx2.AsyncClient(base_url=url) as http,
    ):
        services = worker.build_services(settings, pool, temporal, events, await choose("none"))
        folder = AgentFolder(settings.agents_dir, Catalogue(services.tools, services.handlers))
        await worker.AgentFiles(pool, folder, activities.build_shipped_lists(services)).publish()
        built = worker.build_worker(settings, services)
        with recorded() as files:
            async with built:
                posted = await http.post("/tasks", json={"agent": "assistant", "input": prompt})
                assert posted.status_code == 202, posted.text
                task = posted.json()
                await eventually(lambda: _has_result(http, task["task_id"]), what="the task has a result")
        return files


@asynccontextmanager
async def _served(app: FastAPI) -> AsyncIterator[str]:
    """Serve the API on a real socket: for a request without a key, the API checks which account owns the connection."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_config=None))
    running = asyncio.create_task(server.serve())

    async def is_ready() -> bool:
        return server.started and app.state.services.listener.listening

    await eventually(is_ready, what="the API listens for requests and for events")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await running


async def _has_result(http: httpx2.AsyncClient, task_id: str) -> bool:
    return (await http.get(f"/tasks/{task_id}/result")).status_code == 200


def walk_line(before: list[str], after: list[str]) -> str:
    """The number of the day beside the aim."""
    return f"walk: {len(before) + len(after)} files (aim {AIM[0]}), {len(before)} before Temporal (aim {AIM[1]})"


async def walk(settings: Settings) -> FilesRun:
    """The files of a task with one tool call, the domain counted, background loops left out."""
    files = await files_of(replace(settings, task_queue="files-run"), "[[script:count n=1]] list the files")
    for part in (files.before_temporal, files.after):
        part[:] = [name for name in part if name not in BACKGROUND]
    return files


async def main() -> None:
    files = await walk(Settings.from_env())
    sys.stdout.write(json.dumps({"before_temporal": files.before_temporal, "after": files.after}))


if __name__ == "__main__":
    asyncio.run(main())
