"""Every connection goes through the guard, and nothing that a user can make slow takes a thread of the shared pool.

A place that is not in these lists fails the test. Before you add one, ask who chooses the address and who decides how
long it takes: if the answer is a tenant, use activities/egress.py, or a separate pool of threads.
"""

from collections.abc import Callable
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
        "activities/mcp/program.py::empty_place",
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


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (connections, "def late() -> None:\n    import aiohttp"),
        (connections, "async def go(): await asyncio.open_connection('a', 1)"),
        (connections, "from asyncio import open_connection as plain"),
        (connections, "getattr(asyncio, 'open_connection')('a', 1)"),
        (shared_threads, "run = functools.partial(asyncio.to_thread, work)"),
        (shared_threads, "async def go(): await loop.run_in_executor(executor=None, func=work)"),
    ],
)
def test_new_way_out_is_noticed(tmp_path: Path, find: Callable[[Path], set[str]], text: str) -> None:
    (tmp_path / "connectors").mkdir()
    (tmp_path / "connectors/slack.py").write_text(text)
    assert len(find(tmp_path)) == 1
