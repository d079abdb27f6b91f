"""A newcomer's first minutes: the README's two commands, and the command that the first one suggests."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from domain.ids import new_id
from settings import ROOT
from tests.support.launch import home, offline_model, process
from tests.support.stack import eventually


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a fresh machine, with another data directory."""
    own = {"ERRAND_DATA_DIR": str(folder / "data"), "ERRAND_WORKSPACES_DIR": str(folder / "workspaces")}
    return {name: os.environ[name] for name in ("PATH", "HOME", "ERRAND_VENV") if name in os.environ} | own


async def typed_until(command: str, wanted: str, env: dict[str, str], gone: bool = False) -> None:
    """Repeat the command until it shows this text, or until it no longer does."""

    async def look() -> bool:
        code, output = await typed(command, env)
        return code == 0 and (wanted in output) != gone

    await eventually(look, seconds=60, pause=1.5, what=f"{command} shows {wanted}")


async def typed(command: str, env: dict[str, str]) -> tuple[int | None, str]:
    shell = await asyncio.create_subprocess_shell(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(shell.communicate(), 120)
    return shell.returncode, output.decode()


@contextmanager
def starting(env: dict[str, str], folder: Path) -> Iterator[Callable[[str], Awaitable[str]]]:
    """Run `./errand up`. The function that is yielded waits for a pattern in the output after the last match; if the
    pattern is about stopping, it sends Ctrl-C first."""
    log = folder / f"{new_id()}.log"
    with process(["./errand", "up"], log, env) as up:
        read_to = 0

        async def shown(pattern: str) -> str:
            nonlocal read_to
            if pattern.startswith("stopping"):
                up.send_signal(signal.SIGINT)

            async def look() -> re.Match[str] | None:
                found = re.compile(pattern, re.MULTILINE).search(log.read_text(), read_to)
                assert found or up.poll() is None, log.read_text()
                return found

            found = await eventually(look, seconds=120, pause=0.05, what=pattern)
            read_to = found.end()
            if pattern.startswith("stopping"):
                assert await asyncio.to_thread(up.wait, 30) in (0, 130), log.read_text()
            return found[found.lastindex or 0]

        yield shown


async def test_up_reports_problems_and_still_starts() -> None:
    """A refused key, bad files and an interrupted start are reported; the next start, with a good key, completes."""
    with home() as folder, offline_model(folder) as port:
        env = environment(folder) | {"ERRAND_AGENTS_DIR": str(folder / "agents")}
        shutil.copytree(ROOT / "agents", folder / "agents", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        (folder / "agents" / "bad.md").write_text("---\nname: bad\ndescription: x\ntools: [fly]\nlimit: 3\n---\nx\n")
        wrong = {"ANTHROPIC_API_KEY": "invalid", "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        with starting(env | wrong | {"ERRAND_TOOLS_MODULE": "tests.support.bad_tools"}, folder) as shown:
            await shown(r"^console: +http://127.0.0.1:\d+/$")
            await shown(
                rf"^model: +claude-\S+ at http://127.0.0.1:{port}; at most \$5\.00 per task \(ERRAND_DEFAULT_COST_USD"
            )
            report = await shown(r"((?s:.*?))^Try it in another terminal:")
            assert "agent file bad.md: " in report and "limit: unknown field" in report
            assert "'No Name' is not a tool name" in report and "TOOLS holds <built-in function print>" in report
            assert re.search(
                r"^model: .*\(status 401; model claude-\S+ at \S+\)\. Set a valid ANTHROPIC_API_KEY", report, re.M
            )
            code, status = await typed("./errand status", env)
            assert code == 0 and "status 401" in status and "bad.md" in status
            code, task_id = await typed('./errand run assistant "Look around" --dir docs --detach 2>/dev/null', env)
            assert code == 0, task_id
            task_id = task_id.strip()
            await typed_until(f"./errand show {task_id}", "Set a valid ANTHROPIC_API_KEY", env)
            await shown(r"stopping; 1 task will continue at the next start")

        with starting(env | wrong | {"ANTHROPIC_API_KEY": "sk-good"}, folder) as shown:
            command = await shown(r"^Try it in another terminal:\n +(\./errand .+)$")
            assert "status 401" not in (await typed("./errand status", env))[1]
            code, output = await typed(command, env)
            assert code == 0 and "completed (goal_reached)" in output, output
            code, output = await typed(f"./errand result {task_id} --wait", env)
            assert code == 0 and "The workspace has" in output, output

            # files are read again without a restart, and the problems disappear
            (folder / "agents" / "bad.md").write_text("---\nname: bad\ndescription: Is good now.\n---\nx\n")
            await typed_until("./errand agents", "Is good now.", env)
            assert "bad.md" not in (await typed("./errand status", env))[1]
            (folder / "agents" / "bad.md").unlink()
            await typed_until("./errand agents", "Is good now.", env, gone=True)
            greeter = folder / "greeter.md"
            greeter.write_text("---\nname: greeter\ndescription: Greets.\n---\nGreet.\n")
            assert (await typed(f"./errand agents add {greeter}", env)) == (0, "greeter: version 1\n")
            assert (await typed("./errand agents remove greeter", env)) == (0, "greeter is removed.\n")
            await shown(r"stopping; no task is running")
        code, output = await typed("./errand status", env)
        assert code == 6 and "no stack is running" in output
