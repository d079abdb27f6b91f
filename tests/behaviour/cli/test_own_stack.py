"""Without ERRAND_URL the command line uses the stack of its own data directory, and no other."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy import state
from deploy.state import StackInfo
from domain.events import MessageDelta, StepStarted, TaskCompleted, TaskStarted
from domain.sessions.session import Reason, Status, Usage
from tests.support.terminal import Terminal
from tests.unit.cli.stand_in import TASK, StandIn

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
    started = {"pid": pid, "started": state.started_at(pid), "ready": True}
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
