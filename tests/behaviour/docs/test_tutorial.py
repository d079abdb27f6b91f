"""The tutorial, from its first command to its last, in a copy of the project as a newcomer has it."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from settings import ROOT
from tests.support.launch import free_port, home, process
from tests.support.stack import eventually

BLOCK = re.compile(r"^```(sh|python)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
UP = "./errand up\n"
SHOWN = (  # in this order
    *(
        "The workspace has ",
        "step 1",
        "shop: version 1",
        "1) home",
        "May write_file run",
        "left the warehouse on Monday.",
    ),
    *("SUBAGENT ", "late ", "completed: ", "late (researcher)"),
    *("The log book has 6 entries.", "1 the same, 0 different"),
)


def read_rounds() -> list[str]:
    """The commands of the page as one script for each start of the stack; the page's module is written by the first."""
    rounds: list[str] = []
    for language, text in BLOCK.findall((ROOT / "docs/tutorial.md").read_text()):
        if text == UP:
            rounds.append("set -eu\n")
        else:
            rounds[-1] += text if language == "sh" else f"cat > my_tools.py <<'END'\n{text}END\n"
    return rounds


async def run_script(script: str, folder: Path, env: dict[str, str]) -> str:
    shell = await asyncio.create_subprocess_exec(
        *("sh", "-c", script), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(shell.communicate(), 240)
    assert shell.returncode == 0, output.decode()[-3_000:]
    return output.decode()


def tools_without(folder: Path, *names: str) -> Path:
    """Everything that the PATH has except these; where two folders have a name, the first counts."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for tool in Path(place).iterdir() if Path(place).is_dir() else ():
            if not tool.name.startswith(names) and not os.path.lexists(link := folder / tool.name):
                link.symlink_to(tool)
    return folder


async def test_the_tutorial_works_from_its_first_command_to_its_last() -> None:
    """On a bare machine: no git, no bubblewrap of the system, a home in which nothing can be written, an odd locale."""
    with home() as folder:
        project, log = folder / "errand", folder / "up.log"
        # neither settings nor data of this machine; the compiled modules fit, and save the time of compiling them
        shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(".*", "tests", "bench", "build"))
        tools = tools_without(folder / "tools", "git", "bwrap")
        env = {"PATH": str(tools), "HOME": "/proc", "LC_ALL": "C", "ERRAND_PORT": str(free_port())}
        env["ERRAND_VENV"] = os.environ.get("ERRAND_VENV", str(ROOT / ".venv"))
        output = ""
        for number, script in enumerate(read_rounds(), start=1):
            with process(["sh", "-c", 'cd "$0" && exec ./errand up', str(project)], log, env) as up:

                async def is_ready(number: int = number, up: "subprocess.Popen[bytes]" = up) -> bool:
                    assert up.poll() is None, log.read_text()
                    return log.read_text().count("Errand is ready.") == number

                await eventually(is_ready, seconds=120, what="the stack is ready")
                output += await run_script(script, project, env)
                up.send_signal(signal.SIGINT)
                assert await asyncio.to_thread(up.wait, 30) in (0, 130), log.read_text()
    read_to = 0
    for text in SHOWN:
        assert text in output[read_to:], f"{text!r} is not in:\n{output[read_to:]}"
        read_to += output[read_to:].index(text)
