"""A newcomer's first minutes: the README's two commands, and the command that the first one proposes."""

import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path

from settings import ROOT
from tests.support.launch import home, process
from tests.support.stack import eventually


def environment(folder: Path) -> dict[str, str]:
    """The environment of a fresh machine, with another data directory."""
    own = {"ERRAND_DATA_DIR": str(folder / "data"), "ERRAND_WORKSPACES_DIR": str(folder / "workspaces")}
    return {name: os.environ[name] for name in ("PATH", "HOME", "ERRAND_VENV") if name in os.environ} | own


async def typed(command: str, env: dict[str, str]) -> tuple[int | None, str]:
    shell = await asyncio.create_subprocess_shell(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(shell.communicate(), 120)
    return shell.returncode, output.decode()


async def test_up_proposes_a_command_that_works_and_ctrl_c_stops_everything() -> None:
    with home() as folder, process(["./errand", "up"], log := folder / "up.log", env := environment(folder)) as up:

        async def proposed() -> str | None:
            assert up.poll() is None, log.read_text()
            found = re.search(r"^Try it in another terminal:\n +(\./errand run .+)$", log.read_text(), re.MULTILINE)
            return found[1] if found else None

        command = await eventually(proposed, seconds=120, pause=0.05, what="it is ready")
        code, output = await typed(command, env)
        assert code == 0 and "completed (goal_reached)" in output, output

        up.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(up.wait, 30) in (0, 130), log.read_text()
        code, output = await typed("./errand status", env)
        assert code == 6 and "no stack is running" in output


async def test_test_script_runs_pytest_and_ci_calls_both_scripts() -> None:
    code, output = await typed("scripts/test --version", environment(ROOT / "build"))
    assert code == 0 and re.search(r"^pytest \d", output, re.MULTILINE)
    called = [line.partition(" || ")[0] for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    assert {"scripts/check", 'scripts/test "$@"'} <= set(called)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
