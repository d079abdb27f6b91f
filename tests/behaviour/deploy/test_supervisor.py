"""The supervisor with small real processes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from deploy import supervisor as module
from deploy.child import Part
from deploy.state import StackError, find_start
from deploy.supervisor import Supervisor
from settings import MISCONFIGURED, ROOT
from tests.behaviour.deploy.processes import session_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about its processes")


def shell(name: str, script: str, **more: object) -> Part:
    return Part(name=name, argv=["sh", "-c", script], **more)  # type: ignore[arg-type]


async def eventually(condition: Callable[[], object], within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)


def gone(pid: int) -> bool:
    return find_start(pid) is None


class Logged(list[str]):
    def has(self, text: str) -> bool:
        return any(text in line for line in self)


@pytest.fixture
def logged() -> Logged:
    return Logged()


@pytest.fixture
async def supervisor(tmp_path: Path, logged: Logged) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(tmp_path, log=logged.append)
    yield supervisor
    await supervisor.stop()


async def test_part_that_keeps_failing_stops_the_stack_and_shows_the_end_of_its_log(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    broken = shell("broken", "echo the reason; exit 3", check="tcp://127.0.0.1:1")
    with pytest.raises(StackError) as raised:
        await supervisor.until(supervisor.start(broken))
    message = str(raised.value)
    assert "failed 5 times" in message and "exit code 3" in message
    assert "the reason" in message and str(tmp_path / "broken.log") in message


@linux
async def test_stop_ends_parts_in_reverse_order_and_leaves_nothing_behind(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STOP_WITHIN", 0.5)
    order = tmp_path / "order"

    def noting(name: str) -> Part:
        return shell(name, f"trap 'echo {name} >>{order}; exit' TERM; while :; do sleep 0.05; done")

    await supervisor.start(noting("first"))
    await supervisor.start(noting("second"), shell("stubborn", "trap '' TERM; sleep 100 & while :; do sleep 0.1; done"))
    await asyncio.sleep(0.3)  # time for the shells to set their traps
    pids = [info.pid for info in supervisor.infos() if info.pid]
    session = session_of(pids[-1])
    assert len(pids) == 3 and len(session) >= 2
    await supervisor.stop()
    assert all(gone(pid) for pid in pids)
    await eventually(lambda: all(gone(pid) for pid in session))
    assert order.read_text().split() == ["second", "first"]


async def test_processes_of_a_dead_part_are_killed(supervisor: Supervisor, tmp_path: Path) -> None:
    await supervisor.start(shell("parent", f"sleep 100 & echo $! >{tmp_path}/child; wait"))
    await eventually((tmp_path / "child").exists)
    await asyncio.sleep(0.1)
    child, parent = int((tmp_path / "child").read_text()), supervisor.infos()[0].pid
    assert parent and not gone(child)
    os.kill(parent, signal.SIGKILL)
    await eventually(lambda: gone(child))


@pytest.mark.parametrize(("inherit", "seen"), [(True, "secret,told"), (False, ",told")])
async def test_part_gets_our_environment_or_only_its_own(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherit: bool, seen: str
) -> None:
    monkeypatch.setenv("OURS", "secret")
    script = 'echo "$OURS,$TOLD"'
    await supervisor.run(shell("env", script, env={"TOLD": "told", "PATH": os.defpath}, inherit=inherit))
    assert (tmp_path / "env.log").read_text().strip() == seen


@linux
@pytest.mark.parametrize("as_other_account", [False, True])
async def test_children_die_with_a_killed_supervisor(tmp_path: Path, as_other_account: bool) -> None:
    if as_other_account and os.geteuid() != 0:
        pytest.skip("only root changes accounts")
    script = f"""
import asyncio
from pathlib import Path
from deploy.child import Part
from deploy.data_dir import postgres_account
from deploy.supervisor import Supervisor
async def main():
    supervisor = Supervisor(Path({str(tmp_path)!r}), log=lambda text: None)
    account = postgres_account() if {as_other_account} else None
    await supervisor.start(Part(name="sleeper", argv=["sleep", "1000"], account=account, cwd=Path("/")))
    Path({str(tmp_path)!r}, "pid").write_text(str(supervisor.infos()[0].pid))
    await asyncio.sleep(1000)
asyncio.run(main())
"""
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, cwd=ROOT)
    await eventually(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    child = int((tmp_path / "pid").read_text())
    assert not gone(child)
    parent.kill()
    await parent.wait()
    await eventually(lambda: gone(child), within=3)


async def test_part_that_was_ready_is_always_restarted(
    supervisor: Supervisor, tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST_PAUSE", 0.1)
    fine = tmp_path / "fine"
    fine.touch()
    script = f"test -e {fine} || exit {MISCONFIGURED}; touch {tmp_path}/up; exec sleep 100"
    await supervisor.start(shell("part", script, ready=lambda pid: (tmp_path / "up").exists()))
    fine.unlink()
    (tmp_path / "up").unlink()
    pid = supervisor.infos()[0].pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: supervisor.infos()[0].restarts > module.GIVE_UP_AFTER + 3)
    assert supervisor.infos()[0].problem == f"exit code {MISCONFIGURED}"
    fine.touch()
    await eventually(lambda: supervisor.infos()[0].healthy)
    assert supervisor.infos()[0].problem is None


async def test_follow_up_runs_after_every_start_before_the_part_is_ready(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    await supervisor.start(shell("part", "exec sleep 100", follow_up=shell("prepare", f"echo x >>{count}")))
    assert count.read_text() == "x\n"
    pid = supervisor.infos()[0].pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: count.read_text() == "x\nx\n" and supervisor.infos()[0].healthy)


async def test_part_with_invalid_settings_is_not_restarted(supervisor: Supervisor, logged: Logged) -> None:
    bad = shell("worker", f"echo 'ERRAND_X: not a number'; exit {MISCONFIGURED}", check="tcp://127.0.0.1:1")
    with pytest.raises(StackError, match="cannot run with these settings.*\n.*ERRAND_X: not a number"):
        await supervisor.until(supervisor.start(bad))
    assert not logged.has("restarting it")
