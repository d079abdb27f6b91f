"""The commands for the stack, and how others find theirs and no other; `up` itself is tested with the real stack."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import state
from deploy.data_dir import secret_in, ui_access_file
from deploy.stack import variables
from deploy.state import PartInfo, StackInfo
from domain.events import MessageDelta, StepStarted, TaskCompleted, TaskStarted
from domain.sessions.session import Reason, Status, Usage
from settings import Settings
from tests.support.terminal import Terminal
from tests.unit.cli.conftest import Cli
from tests.unit.cli.stand_in import TASK, StandIn


@pytest.fixture
def stack(server: StandIn, tmp_path: Path) -> StackInfo:
    """A stack whose only process is the test process."""
    pid, started = os.getpid(), state.find_start(os.getpid())
    part = PartInfo(
        name="api", address=server.url, pid=pid, started=started, healthy=True, restarts=2, log=tmp_path / "api.log"
    )
    info = StackInfo(
        pid=pid,
        started=started,
        ready=True,
        api_url=server.url,
        docs_url=f"{server.url}/docs",
        temporal_address="127.0.0.1:7233",
        temporal_ui_url="http://127.0.0.1:8233",
        database_url="postgresql://errand:***@127.0.0.1:5433/errand",
        data_dir=tmp_path,
        offline_model=True,
        parts=[part],
    )
    state.write(info)
    return info


def test_status_lists_each_process(stack: StackInfo, cli: Cli) -> None:
    done = cli("status")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].split() == ["api", "healthy", str(os.getpid()), "2", stack.api_url]
    for address in (stack.docs_url, stack.temporal_ui_url, str(stack.data_dir), "ANTHROPIC_API_KEY is not set"):
        assert str(address) in done.stdout
    shown = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert shown["console"].strip() == f"{stack.api_url}/"
    assert json.loads(cli("status", "--json").stdout)["parts"][0]["restarts"] == 2
    secret_in(ui_access_file(stack.data_dir))
    link = f"http://127.0.0.1:8233/?access={ui_access_file(stack.data_dir).read_text()}"
    assert link in cli("status").stdout
    assert json.loads(cli("status", "--json").stdout)["temporal_ui_url"] == link


def test_unhealthy_process_fails_the_status_command(stack: StackInfo, cli: Cli) -> None:
    stack.parts[0].pid = None
    state.write(stack)
    done = cli("status")
    assert done.exit_code == 1 and "unhealthy" in done.stdout


def test_commands_find_the_running_stack(stack: StackInfo, server: StandIn, cli: Cli) -> None:
    assert cli("tasks", ERRAND_URL="", ERRAND_PORT="9").exit_code == 0
    assert server.asked_for("/tasks")


def test_second_detached_up_is_harmless_and_shows_the_first_command(stack: StackInfo, cli: Cli) -> None:
    done = cli("up", "--detach")
    assert done.exit_code == 0 and "already running" in done.stderr
    assert "./errand demo look" in done.stdout
    assert json.loads(cli("up", "--detach", "--json").stdout)["api_url"] == stack.api_url


def test_up_shows_how_to_create_a_key_if_one_is_needed(stack: StackInfo, cli: Cli) -> None:
    makes = "export ERRAND_API_KEY=$(./errand keys create me)"
    assert makes in cli("up", "--detach", ERRAND_HOST="0.0.0.0").stdout
    assert makes not in cli("up", "--detach").stdout


def test_status_shows_what_a_task_may_cost(stack: StackInfo, cli: Cli) -> None:
    for limit, shown in ((5.0, "at most $5.00 per task"), (0.0, "no cost limit per task")):
        state.write(stack.model_copy(update={"offline_model": False, "cost_limit": limit, "model": "claude-opus-4-5"}))
        done = cli("status").stdout
        assert shown in done and "ERRAND_DEFAULT_COST_USD" in done
    state.write(stack.model_copy(update={"offline_model": False, "cost_limit": 5.0, "model": "mystery"}))
    assert "its price is unknown, so at most 5,000,000 tokens per task" in cli("status").stdout
    state.write(stack)
    assert "per task" not in cli("status").stdout  # the offline model costs nothing


END = TaskCompleted(status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage())


@pytest.fixture
def stranger() -> Iterator[StandIn]:
    """Another API, on the default port of this command line."""
    other = StandIn()
    other.start()
    yield other
    other.stop()


def own_env(home: Path, stranger: StandIn) -> dict[str, str]:
    return {"ERRAND_URL": "", "ERRAND_DATA_DIR": str(home), "ERRAND_PORT": str(stranger.port), "ERRAND_API_KEY": ""}


def write_state(home: Path, server: StandIn) -> None:
    """Write the state file of a stack whose API is this server."""
    pid = os.getpid()
    addresses = {"api_url": server.url, "docs_url": f"{server.url}/docs", "temporal_ui_url": None}
    others = {"temporal_address": "", "database_url": "", "offline_model": True}
    started = {"pid": pid, "started": state.find_start(pid), "ready": True}
    state.write(StackInfo.model_validate({**addresses, **others, **started, "data_dir": home}))


@pytest.mark.parametrize("command", [["tasks"], ["run", "assistant", "hello"], ["chat"], ["attach", TASK]])
def test_command_without_its_own_stack_calls_no_other_stack(
    command: list[str], stranger: StandIn, tmp_path: Path
) -> None:
    with Terminal(*command, env=own_env(tmp_path, stranger)) as terminal:
        if command == ["chat"]:
            terminal.expect(">")
            terminal.type("hello")
            terminal.expect("no stack is running on")
            terminal.type("/quit")
        terminal.exit_code()
        assert "no stack is running on" in terminal.text and "./errand up" in terminal.text
        assert "ERRAND_URL" in terminal.text
        if command != ["chat"]:
            assert terminal.exit_code() == 6
    assert stranger.asked == []


def test_attached_client_waits_for_its_own_stack(server: StandIn, stranger: StandIn, tmp_path: Path) -> None:
    server.emit(TaskStarted(model="m"), StepStarted(step=1, description=""), MessageDelta(step=1, text="before "))
    server.emit(MessageDelta(step=1, text="after"), END)
    server.hold_after = 3
    write_state(tmp_path, server)
    with Terminal("attach", TASK, env=own_env(tmp_path, stranger)) as terminal:
        terminal.expect("before")
        state.remove(tmp_path)
        server.stop()
        terminal.expect("connection lost, reconnecting")
        time.sleep(1.0)  # time for several attempts to find the stack
        server.hold_after, server.port = None, 0
        server.start()  # the server gets another port
        write_state(tmp_path, server)
        terminal.expect("after")
        assert terminal.exit_code() == 0
    assert stranger.asked == []


def test_command_waits_while_its_own_stack_starts_the_api_again(
    server: StandIn, stranger: StandIn, tmp_path: Path
) -> None:
    """This happens right after a kill -9 of the API, as the README suggests."""
    write_state(tmp_path, server)
    server.emit(StepStarted(step=1, description="before"), END)
    server.stop()
    with Terminal("attach", TASK[:9], env=own_env(tmp_path, stranger)) as terminal:
        terminal.expect("the stack is starting its API again")
        server.start()
        assert terminal.exit_code() == 0, terminal.text
        assert "before" in terminal.text


def test_histories_are_not_read_from_another_temporal(stranger: StandIn, tmp_path: Path) -> None:
    env = {**own_env(tmp_path, stranger), "TEMPORAL_ADDRESS": ""}
    with Terminal("replay", TASK, env=env) as terminal:
        assert terminal.exit_code() == 6
        assert "no stack is running on" in terminal.text and "TEMPORAL_ADDRESS" in terminal.text
    with Terminal("replay", TASK, env={**env, "ERRAND_URL": stranger.url}) as terminal:
        assert terminal.exit_code() == 6
        assert f"TEMPORAL_ADDRESS to that of the server behind {stranger.url}" in terminal.text.replace("\n", "")


def test_config_shows_what_the_running_stack_was_started_with(stack: StackInfo, cli: Cli) -> None:
    same = cli("config", "--json", ERRAND_LIVE_TASKS="7")
    started_with = variables(Settings(data_dir=stack.data_dir, live_tasks=7))
    state.write(stack.model_copy(update={"started_with": started_with}))
    assert "started with" not in cli("config", ERRAND_LIVE_TASKS="7").stderr
    other = cli("config", ERRAND_LIVE_TASKS="9", ERRAND_MAX_QUESTIONS="3")
    assert "was started with ERRAND_LIVE_TASKS=7" in other.stderr
    assert "was started with ERRAND_MAX_QUESTIONS=20" in other.stderr
    items = json.loads(cli("config", "--json", ERRAND_LIVE_TASKS="9").stdout)["items"]
    [found] = [one for one in items if one["name"] == "ERRAND_LIVE_TASKS"]
    assert (found["value"], found["running"]) == ("9", "7") and "running" not in same.stdout


def test_open_opens_the_console_of_this_stack(stack: StackInfo, cli: Cli, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >{opened}\n')
    browser.chmod(0o755)
    done = cli("open", BROWSER=f"{browser} %s")
    assert (done.exit_code, done.stdout) == (0, f"{stack.api_url}/\n")
    assert opened.read_text() == done.stdout
    assert json.loads(cli("open", "--json").stdout) == {"url": f"{stack.api_url}/"}
