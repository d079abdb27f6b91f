"""The embedded stack with real PostgreSQL and Temporal; worker and API are small stand-ins."""

import contextlib
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from deploy import data_dir, local, state
from deploy.state import StackError, StackInfo, find_start, is_loopback
from deploy.temporal import SEARCH_ATTRIBUTES
from settings import ROOT, Settings
from tests.behaviour.deploy.processes import commands, listening

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about its processes")

PROGRAM = [sys.executable, "-m", "tests.behaviour.deploy.stack_with_stand_ins"]


def eventually(condition: Callable[[], object], within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


class RunningStack:
    """A stack in a separate process."""

    def __init__(self, home: Path) -> None:
        self.settings = Settings(data_dir=home)
        self._home = home
        self._output = (home.parent / f"{home.name}.out").open("w+b")
        self.process = subprocess.Popen([*PROGRAM, home], cwd=ROOT, stdout=self._output, stderr=self._output)

    def until_ready(self) -> StackInfo:
        eventually(lambda: self.process.poll() is not None or ((info := self.info()) and info.ready))
        assert self.process.poll() is None, self.printed()
        return self.healthy()

    def healthy(self) -> StackInfo:
        """Wait until all parts answer."""
        eventually(lambda: (info := self.info()) and all(part.healthy for part in info.parts))
        info = self.info()
        assert info
        return info

    def info(self) -> StackInfo | None:
        return local.status(self.settings)

    def printed(self) -> str:
        self._output.seek(0)
        return self._output.read().decode()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._output.close()


def pids(info: StackInfo) -> dict[str, int]:
    return {part.name: part.pid for part in info.parts if part.pid}


def gone(info: StackInfo) -> bool:
    return all(find_start(pid) is None for pid in pids(info).values())


@contextlib.contextmanager
def running(home: Path) -> Iterator[RunningStack]:
    stack = RunningStack(home)
    try:
        stack.until_ready()
        yield stack
    finally:
        stack.close()


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    # not pytest's folder: as root, PostgreSQL runs as another account, which cannot enter that folder
    with tempfile.TemporaryDirectory(prefix="errand-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "data"


@pytest.fixture(scope="module")
def stack(home: Path) -> Iterator[RunningStack]:
    with running(home) as stack:
        yield stack


def test_stack_runs_every_part_and_shows_no_secret(stack: RunningStack, home: Path) -> None:
    info = stack.healthy()
    assert {part.name for part in info.parts} == {"postgres", "temporal", "temporal-ui", "model", "worker", "api"}
    assert all(part.healthy and part.restarts == 0 and part.log.exists() for part in info.parts)
    assert info.database_url.startswith("postgresql://errand:***@127.0.0.1:")
    for file in (home / "postgres.password", home / "secret-key"):
        secret = file.read_text()
        assert secret and secret not in info.model_dump_json() + (home / "stack.json").read_text() + stack.printed()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert secret not in commands()


def test_parts_listen_on_loopback_only(stack: RunningStack) -> None:
    listened = {name: listening(pid) for name, pid in pids(stack.healthy()).items()}
    assert all(listened[name] for name in ("postgres", "temporal", "api"))
    assert all(is_loopback(address) for sockets in listened.values() for address, _ in sockets)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is dropped to another account")
def test_postgres_runs_as_its_own_account(stack: RunningStack) -> None:
    [pid] = [part.pid for part in stack.healthy().parts if part.name == "postgres"]
    uid = Path(f"/proc/{pid}").stat().st_uid
    assert pwd.getpwuid(uid).pw_name == "errand-postgres" and uid not in (0, 65_534)


async def test_database_requires_its_password(stack: RunningStack) -> None:
    connection = await asyncpg.connect(local.database_url(stack.settings))
    await connection.close()
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(local.database_url(stack.settings).replace("errand:", "errand:x"))


async def test_temporal_has_our_retention_and_search_attributes(stack: RunningStack) -> None:
    client = await Client.connect(stack.healthy().temporal_address)
    namespace = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    assert namespace.config.workflow_execution_retention_ttl.ToTimedelta().days == 30
    known = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace="default"))
    assert set(SEARCH_ATTRIBUTES) <= set(known.custom_attributes)


def test_second_stack_on_the_same_data_is_refused(stack: RunningStack, home: Path) -> None:
    second = subprocess.run([*PROGRAM, home], cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert second.returncode != 0
    info = stack.healthy()
    assert f"pid {info.pid}; API {info.api_url}, Temporal {info.temporal_ui_url}" in second.stderr
    with pytest.raises(StackError, match=f"already running on .* .pid {info.pid};"):
        local.start_detached(stack.settings)


def test_killed_parts_are_restarted(stack: RunningStack) -> None:
    before = pids(stack.healthy())
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: (info := stack.info()) and all(part.restarts == 1 for part in info.parts))
    after = pids(stack.healthy())
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
    assert "postgres ended (SIGKILL); restarting it" in stack.printed()


def test_killed_stack_starts_clean_and_down_leaves_nothing(stack: RunningStack, home: Path) -> None:
    before = stack.healthy()
    os.kill(before.pid, signal.SIGKILL)
    stack.process.wait()
    with running(home) as again:
        assert gone(before)
        info = again.healthy()
        assert again.printed().split() == ["ready"] or "is taken by" in again.printed()
        assert (home / "logs" / "migrate.log").read_text().count("applied 0001") == 1  # the data is still there
        began = time.monotonic()
        assert local.down(again.settings) is True
        assert time.monotonic() - began < 8
        assert gone(info) and find_start(info.pid) is None
        assert "the model answers" in (home / "logs" / "worker.log").read_text()
        assert local.status(again.settings) is None and not (home / "stack.json").exists()
        assert local.down(again.settings) is False


def make_data(home: Path) -> None:
    """The data of an earlier start; usually another test has left it."""
    if not (home / "postgres").exists():
        with running(home):
            pass


def test_leftovers_of_a_crash_do_not_hinder_the_next_start(home: Path) -> None:
    """A PostgreSQL pid file with another process's pid, and a Temporal database whose first start was interrupted."""
    make_data(home)
    dropped = data_dir.postgres_account()
    who = {"user": dropped.uid, "group": dropped.gid, "extra_groups": ()} if dropped else {}
    with subprocess.Popen(["sleep", "100"], cwd="/", **who) as bystander:  # type: ignore[call-overload]
        (home / "postgres" / "postmaster.pid").write_text(f"{bystander.pid}\n{home}/postgres\n1\n1\n\n\n\nready\n")
        for left in (home / "temporal").glob("temporal.db*"):
            left.unlink()
        (home / "temporal" / "temporal.db").write_bytes(b"")
        try:
            with running(home):
                assert bystander.poll() is None
        finally:
            bystander.kill()


def test_failed_detached_start_shows_why(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(StackError, match=f"(?s)did not start.*ERRAND_PORT: cannot listen on 127.0.0.1:{port}"):
            local.start_detached(Settings(data_dir=home, port=port))
    assert state.read(home) is None
