"""The commands for the stack, and how others find theirs and no other; `up` itself is tested with the real stack."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from deploy import state
from deploy.data_dir import secret_in, ui_access_file
from deploy.state import PartInfo, StackInfo
from tests.support.command import cli as command_on
from tests.support.stack import Stack
from tests.support.terminal import Terminal
from tests.unit.cli.conftest import NOWHERE, Cli


@pytest.fixture
def own(tmp_path: Path) -> StackInfo:
    """A stack whose only process is the test process."""
    pid, started = os.getpid(), state.find_start(os.getpid())
    part = PartInfo(
        name="api", address=NOWHERE, pid=pid, started=started, healthy=True, restarts=2, log=tmp_path / "api.log"
    )
    info = StackInfo(
        pid=pid,
        started=started,
        ready=True,
        api_url=NOWHERE,
        docs_url=f"{NOWHERE}/docs",
        temporal_address="127.0.0.1:7233",
        temporal_ui_url="http://127.0.0.1:8233",
        database_url="postgresql://errand:***@127.0.0.1:5433/errand",
        data_dir=tmp_path,
        offline_model=True,
        parts=[part],
    )
    state.write(info)
    return info


def test_status_lists_each_process(own: StackInfo, cli: Cli) -> None:
    done = cli("status")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].split() == ["api", "healthy", str(os.getpid()), "2", own.api_url]
    for address in (own.docs_url, own.temporal_ui_url, str(own.data_dir), "ANTHROPIC_API_KEY is not set"):
        assert str(address) in done.stdout
    shown = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert shown["console"].strip() == f"{own.api_url}/"
    assert json.loads(cli("status", "--json").stdout)["parts"][0]["restarts"] == 2
    secret_in(ui_access_file(own.data_dir))
    link = f"http://127.0.0.1:8233/?access={ui_access_file(own.data_dir).read_text()}"
    assert link in cli("status").stdout
    assert json.loads(cli("status", "--json").stdout)["temporal_ui_url"] == link


def test_unhealthy_process_fails_the_status_command(own: StackInfo, cli: Cli) -> None:
    own.parts[0].pid = None
    state.write(own)
    done = cli("status")
    assert done.exit_code == 1 and "unhealthy" in done.stdout


def local(stack: Stack, home: Path, **more: str) -> Any:
    """The environment of a command without an address, for the data folder `home`; `stack` has its default port."""
    port = stack.url.rpartition(":")[2]
    return {"ERRAND_URL": "", "ERRAND_API_KEY": "", "ERRAND_DATA_DIR": str(home), "ERRAND_PORT": port, **more}


@pytest.mark.parametrize("command", [["tasks"], ["run", "tester", "To a stranger"], ["attach", "0" * 26]])
async def test_command_without_its_own_stack_calls_no_other_stack(
    command: list[str], stack: Stack, tmp_path: Path
) -> None:
    said = await command_on(stack, *command, **local(stack, tmp_path))
    assert said.exit_code == 6 and f"no stack is running on {tmp_path}" in said.stderr
    assert "./errand up" in said.stderr and "ERRAND_URL" in said.stderr
    assert (await stack.http.get("/tasks", params={"text": "To a stranger"})).json()["items"] == []


async def test_commands_find_their_own_stack_and_wait_while_its_api_starts_again(stack: Stack, tmp_path: Path) -> None:
    """This happens right after a kill -9 of the API, as the README suggests."""
    env = local(stack, stack.root, XDG_STATE_HOME=str(tmp_path), NO_COLOR="1")
    task_id = await stack.submit("[[script:say words=150 delay=0.1]]")

    def attach() -> Terminal:
        terminal = Terminal("attach", task_id, env=env).__enter__()
        terminal.expect("word1 ")
        return terminal

    terminal = await asyncio.to_thread(attach)
    try:
        died = await stack.kill("api")
        shown = await command_on(stack, "show", task_id[:20], **env)
        assert shown.exit_code == 0 and "connection lost, reconnecting" in shown.stderr, shown.output
        await asyncio.to_thread(terminal.expect, "connection lost, reconnecting")
        assert await asyncio.to_thread(terminal.exit_code) == 0
        assert terminal.text.count("word150") == 1
    finally:
        terminal.__exit__()
    await stack.back("api", died)
