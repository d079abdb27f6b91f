"""The state file, the lock, and distinguishing a process from a later one with the same pid."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import local, state
from deploy.state import PartInfo, StackInfo, end_process, find_start, without_passwords
from settings import Settings


def info(home: Path, pid: int, started: str | None, parts: list[PartInfo] | None = None) -> StackInfo:
    return StackInfo(
        pid=pid,
        started=started,
        ready=True,
        api_url="http://127.0.0.1:8700",
        docs_url="http://127.0.0.1:8700/docs",
        temporal_address="127.0.0.1:7233",
        temporal_ui_url="http://127.0.0.1:8233",
        database_url="postgresql://errand:***@127.0.0.1:5433/postgres",
        data_dir=home,
        offline_model=True,
        parts=parts or [],
    )


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "100"]) as process:
        yield process
        process.kill()


def test_running_stack_is_found_and_a_stale_state_file_is_not(tmp_path: Path) -> None:
    assert local.status(Settings(data_dir=tmp_path)) is None
    state.write(info(tmp_path, os.getpid(), find_start(os.getpid())))
    assert state.running(tmp_path) is not None
    # the pid now belongs to another process
    state.write(info(tmp_path, os.getpid(), "1"))
    assert state.running(tmp_path) is None
    assert local.down(Settings(data_dir=tmp_path)) is False


def test_down_ends_leftover_parts_and_no_other_process(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    def part(started: str | None) -> PartInfo:
        log = tmp_path / "log"
        return PartInfo(name="p", address="", pid=sleeper.pid, started=started, healthy=True, restarts=0, log=log)

    state.write(info(tmp_path, 1, "never", [part("a former process")]))
    assert local.down(Settings(data_dir=tmp_path)) is False
    assert sleeper.poll() is None
    state.write(info(tmp_path, 1, "never", [part(find_start(sleeper.pid))]))
    local.down(Settings(data_dir=tmp_path))
    assert sleeper.wait(5) == -signal.SIGINT


def test_process_that_ignores_the_signal_is_killed() -> None:
    script = "trap '' INT; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout and deaf.stdout.readline() == b"ready\n"
        started = find_start(deaf.pid)
        assert started
        end_process(deaf.pid, started=started, first=signal.SIGINT, patience=0.2)
        assert deaf.wait(5) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://errand:s3cret@db:5432/errand", "postgresql://errand:***@db:5432/errand"),
        ("postgresql://db/errand?user=u&password=s3cret&x=1", "postgresql://db/errand?user=u&password=***&x=1"),
        ("postgresql://errand:s3%3A/c?ret@db/errand", "postgresql://errand:***@db/errand"),
    ],
)
def test_password_in_a_url_is_replaced_by_stars(url: str, shown: str) -> None:
    assert without_passwords(url) == shown
