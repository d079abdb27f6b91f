"""A separate Temporal server, database, worker and API for one test, for what must not touch the shared stack."""

import sys
import sysconfig
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from deploy.stack import variables
from deploy.state import StackInfo
from deploy.temporal import CONNECTION, FLAGS, SEARCH_ATTRIBUTES
from store.migrate import migrate
from tests.support.launch import connected, empty_database, free_port, process, running
from tests.support.stack import Stack, eventually


@contextmanager
def temporal_server(folder: Path, flags: dict[str, str]) -> Iterator[str]:
    """Run a Temporal server in memory, with our search attributes."""
    port = free_port()
    argv = [str(Path(sysconfig.get_path("scripts")) / "temporal"), "server", "start-dev", "--headless"]
    argv += ["--disable-config-file", "--disable-config-env", "--ip", "127.0.0.1", "--port", str(port)]
    for name in SEARCH_ATTRIBUTES:
        argv += ["--search-attribute", f"{name}=Keyword"]
    for key, value in (FLAGS | flags).items():
        argv += ["--dynamic-config-value", f"{key}={value}"]
    with process(argv, folder / "temporal.log", {}):
        yield f"127.0.0.1:{port}"


@asynccontextmanager
async def platform(stack: Stack, folder: Path, flags: dict[str, str], **changes: Any) -> AsyncIterator[Stack]:
    """Use the stack's PostgreSQL server and model, but a separate database, so that the stack's sweeper ignores it."""
    with temporal_server(folder, flags) as address:
        await eventually(lambda: _answers(address), what="Temporal is up")
        async with empty_database(stack.database_url) as url:
            await migrate(url)
            settings = replace(
                stack.settings,
                database_url=url,
                temporal_address=address,
                workspaces_dir=folder / "workspaces",
                port=free_port(),
                drain_seconds=1.0,
                **changes,
            )
            env = variables(settings) | CONNECTION
            api_url = f"http://127.0.0.1:{settings.port}"
            info = StackInfo(
                pid=0,
                started=None,
                api_url=api_url,
                docs_url=f"{api_url}/docs",
                temporal_address=address,
                temporal_ui_url=None,
                database_url=url,
                data_dir=folder,
                offline_model=False,
            )
            serve = [sys.executable, "-m", "uvicorn", "api.app:app", "--port", str(settings.port)]
            async with (
                running([sys.executable, "worker.py"], folder / "worker.log", env),
                running(serve, folder / "api.log", env),
                connected(settings, info) as own,
            ):
                yield own


async def _answers(address: str) -> bool:
    try:
        await Client.connect(address)
    except (RPCError, RuntimeError):
        return False
    return True
