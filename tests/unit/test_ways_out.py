"""Every connection goes through the guard, and nothing that a user can make slow takes a thread of the shared pool.

A place that is not in these lists fails the test. Before you add one, ask who chooses the address and who decides how
long it takes: if the answer is a tenant, use activities/egress.py, or a separate pool of threads.
"""

from pathlib import Path

import pytest

from settings import ROOT
from tests.support.ways_out import connections, shared_threads

CONNECTIONS = {
    "the guard itself": [
        "activities/egress.py imports httpcore2",
        "activities/egress.py imports httpx2",
        "activities/egress.py imports socket",
        "activities/egress.py::Guard.connect_tcp connect_tcp",
        "activities/egress.py::Guard.open connect_tcp",
        "activities/egress.py::resolve getaddrinfo",
    ],
    "speaks over a connection that the guard opened, or over the pipes of a sandboxed program": [
        "activities/mcp/call.py imports mcp.client",
        "activities/mcp/connection.py imports mcp.Client",
        "activities/mcp/connection.py imports mcp.client",
        "activities/mcp/remote_task.py imports mcp.client",
        "activities/mcp/discover.py imports mcp.client",
    ],
    "the model, at an address of the operator": [
        "activities/model/anthropic.py imports anthropic",
        "activities/model/anthropic.py imports httpx2",
        "activities/model/models.py imports httpx2",
        "activities/model/openai.py imports aiohttp",
        "activities/model/openai.py imports httpx2",
        "activities/model/openai.py imports openai",
    ],
    "the mail server of the operator, in threads of its own": ["activities/notifications/channels.py imports smtplib"],
    "the database and Temporal, at addresses of the operator": [
        "api/app.py::_run_services connect",
        "store/database.py::connect connect",
        "store/events.py::listen connect",
        "store/migrate.py::migrate connect",
        "worker.py:: connect",
        "worker.py::run connect",
        "workflows/client.py::connect connect",
    ],
    "traces, to an address of the operator": ["workflows/telemetry.py imports opentelemetry.exporter"],
    "a socket that listens inside a sandbox: what a command asks of it goes through the guard": [
        "activities/sandbox/launcher.py imports socket",
        "activities/sandbox/network.py imports socket",
    ],
    "asks the kernel who the caller on this machine is": ["api/http/auth.py imports socket"],
    "reads an address in any notation, and never looks up a name": [
        "api/routes/notifications.py imports socket",
        "api/routes/notifications.py::_private getaddrinfo",
    ],
    "the name of this machine": ["worker.py imports socket"],
}

SHARED_THREADS = {
    "reads or writes files of one workspace, whose number and size are limited; none can be a pipe": [
        "activities/requests/approved_files.py::find_changed",
        "activities/skills.py::brief",
        "activities/thread_state.py::ThreadFiles.read",
        "activities/thread_state.py::ThreadFiles.write",
        "activities/trees.py::Mirrors._mirror",
        "activities/trees.py::Mirrors._put_bundle",
        "activities/trees.py::Mirrors.push",
        "activities/trees.py::Trees._diff",
        "activities/workspaces.py::Workspaces.forget",
        "activities/sandbox/supervise.py::user_for",
        "activities/tools/builtin/edit_file.py::run",
        "activities/tools/builtin/list_files.py::run",
        "activities/tools/builtin/load_skill.py::run",
        "activities/tools/builtin/read_file.py::run",
        "activities/tools/builtin/save_artifact.py::_file",
        "activities/tools/builtin/search_files.py::run",
        "activities/tools/builtin/write_file.py::run",
        "activities/tools/run_tool.py::shorten_output",
    ],
    "computes over data of limited size": [
        "activities/delegation/attempts.py::Attempts._choose",
        "activities/delegation/plan.py::Planner.plan",
        "activities/requests/approved_files.py::files_to_approve",
        "activities/requests/approved_files.py::diff_of",
        "activities/tools/run_tool.py::check_shown",
        "api/faces/responses/request.py::read_create",
        "api/submission/task_files.py::find_shown",
        "api/submission/task_files.py::unpack_into",
        "api/submission/rules.py::_find_variables",
        "store/files.py::put_blobs",
        "store/variables.py::SharedVariables.renew",
        "store/workspaces.py::_parse",
        "store/workspaces.py::as_of",
        "store/workspaces.py::change_in",
    ],
    "once at the start or the end, or regularly, over files of the operator": [
        "activities/sandbox/seatbelt.py::Seatbelt.run",
        "api/app.py::_run_services",
        "api/faces/mcp/routes.py::McpHost.run",
        "worker.py::AgentFiles.publish",
        "worker.py::_beat",
    ],
}


def test_connections_are_opened_in_listed_places_only() -> None:
    assert sorted(connections(ROOT)) == sorted(place for places in CONNECTIONS.values() for place in places)


def test_shared_threads_are_taken_in_listed_places_only() -> None:
    assert sorted(shared_threads(ROOT)) == sorted(place for places in SHARED_THREADS.values() for place in places)


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return root


@pytest.mark.parametrize(
    "text",
    [
        "from httpx2 import AsyncClient",
        "import slack_sdk.web",
        "def late() -> None:\n    import aiohttp",
        "if TYPE_CHECKING:\n    import requests",
        "from urllib import request",
        "async def go(): await asyncio.open_connection('a', 1)",
        "open_it = asyncio.open_connection",
        "async def go(): await loop.getaddrinfo('a', 1)",
        "from asyncio import open_connection as plain",
        "import importlib\nimportlib.import_module('httpx2')",
        "getattr(asyncio, 'open_connection')('a', 1)",
    ],
)
def test_new_connection_is_noticed(tmp_path: Path, text: str) -> None:
    for path in ("connectors/slack.py", "activities/tools/builtin/fetch.py", "api/routes/hooks.py"):
        assert len(connections(write(tmp_path, path, text))) == 1
        (tmp_path / path).unlink()


@pytest.mark.parametrize(
    "text",
    [
        "async def go(): await asyncio.to_thread(work)",
        "async def go(): await anyio.to_thread.run_sync(work)",
        "async def go(): await asyncio.get_running_loop().run_in_executor(None, work)",
        "async def go(): await loop.run_in_executor(executor=None, func=work)",
        "from asyncio import to_thread as elsewhere",
        "run = functools.partial(asyncio.to_thread, work)",
        "from starlette.concurrency import run_in_threadpool\nasync def go(): await run_in_threadpool(work)",
    ],
)
def test_new_use_of_the_shared_threads_is_noticed(tmp_path: Path, text: str) -> None:
    assert len(shared_threads(write(tmp_path, "connectors/slack.py", text))) == 1


def test_harmless_neighbours_pass(tmp_path: Path) -> None:
    text = (
        "from httpx2 import URL\nfrom urllib.parse import urlsplit\nasync def go(): await loop.run_in_executor(own, f)"
    )
    root = write(tmp_path, "connectors/slack.py", text)
    assert connections(root) == shared_threads(root) == set()
