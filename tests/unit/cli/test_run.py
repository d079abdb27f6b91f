"""`errand run`: what is submitted, what is printed, and detaching without stopping the task."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from domain.events import MessageDelta, StepStarted, TaskCompleted
from domain.sessions.session import Reason, Status, Usage
from settings import ROOT
from tests.unit.cli.conftest import Cli, ndjson
from tests.unit.cli.stand_in import TASK, StandIn

END = TaskCompleted(status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage())


def sent(server: StandIn) -> Any:
    (body,) = server.asked_for("/tasks")
    return body


def test_run_submits_a_plain_task(server: StandIn, cli: Cli) -> None:
    server.emit(END)
    assert cli("run", "assistant", "Look around").exit_code == 0
    assert sent(server) == {"agent": "assistant", "input": "Look around", "config": {}, "context": {}}
    assert len(server.headers[0]["idempotency-key"]) == 32


def test_run_sends_every_option(server: StandIn, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_bytes(b"a,b\n\xff")
    options = ["--ttl", "1h30m", "--max-steps", "9", "--max-tokens", "100", "--max-cost", "0.5"]
    options += ["--model", "m", "--sandbox", "isolated", "--title", "t", "--max-tool-calls", "7", "--check", "make"]
    options += ["--permission", "bash=ask", "--permission", "bash:rm a=b*=deny"]
    more = ["--note", "n 1", "--note", "n 2", "--criterion", "c", "--constraint", "k", "--file", str(file)]
    done = cli("run", "a", "-", *options, *more, "--idempotency-key", "once", "--detach", input="von stdin ü")
    assert (done.exit_code, done.stdout) == (0, TASK + "\n")
    assert sent(server) == {
        "agent": "a",
        "input": "von stdin ü",
        "title": "t",
        "acceptance_criteria": ["c", {"kind": "command", "run": "make"}],
        "constraints": ["k"],
        "permissions": [
            {"permission": "bash", "action": "ask"},
            {"permission": "bash", "pattern": "rm a=b*", "action": "deny"},
        ],
        "context": {"files": ["file-data.csv"], "notes": ["n 1", "n 2"]},
        "config": {
            "ttl": 5_400_000,
            "max_steps": 9,
            "max_tokens": 100,
            "max_cost_usd": 0.5,
            "max_tool_calls": 7,
            "model": "m",
            "sandbox": "isolated",
        },
    }
    assert server.asked_for("/files") == [b"a,b\n\xff"]
    assert server.headers[-1]["idempotency-key"] == "once"


def test_run_sends_structured_input(server: StandIn, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"path": "."}')
    assert cli("run", "a", "--input-json", str(file), "--no-wait", "--json").exit_code == 0
    assert sent(server)["input"] == {"path": "."}


@pytest.mark.parametrize(
    "args",
    [
        ["a"],
        ["a", "text", "--input-json", "-"],
        ["a", "--input-json", "-"],
        ["a", "text", "--ttl", "soon"],
        ["a", "text", "--ttl", "10"],
        ["a", "text", "--sandbox", "none"],
        ["a", "text", "--ref", "x", "--ref", "y"],
        ["a", "text", "--max-cost", "0"],
        ["a", "text", "--file", "/no/such/file"],
        ["a", "bad \udcff text"],
        ["a", "text", "--key", "schlüssel"],
        ["a", "text", "--url", "localhost:8700"],
    ],
)
def test_wrong_command_sends_nothing(server: StandIn, cli: Cli, args: list[str]) -> None:
    done = cli("run", *args, input="[1, 2]")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Error: " in done.stderr
    assert server.asked_for("/tasks") == []


def test_run_refuses_invalid_utf8_on_stdin(server: StandIn, cli: Cli) -> None:
    done = cli("run", "a", "-", input=b"\xff\xfe")
    assert done.exit_code == 2 and "not valid UTF-8" in done.stderr


def test_run_sends_the_key_and_prints_events_as_ndjson(server: StandIn, cli: Cli) -> None:
    server.emit(MessageDelta(step=1, text="hi\n\x1b"), END)
    done = cli("run", "a", "b", "--json", ERRAND_API_KEY="ek_secret")
    assert [event["seq"] for event in ndjson(done.stdout)] == [1, 2]
    assert {headers["authorization"] for headers in server.headers} == {"Bearer ek_secret"}
    assert done.stderr == ""


def test_detached_run_says_that_the_task_continues_and_how_to_follow_it(server: StandIn, cli: Cli) -> None:
    done = cli("run", "assistant", "hello", "--detach")
    assert done.exit_code == 0
    assert "the task continues" in done.stderr
    for command in ("attach", "result", "cancel"):
        assert f"./errand {command} {TASK}" in done.stderr


def start(server: StandIn, *args: str, stdout: int = subprocess.PIPE, **env: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.defpath, "ERRAND_URL": server.url, "TERM": "xterm", **env}
    command = [sys.executable, "-m", "cli", *args]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("away", [False, True])
def test_ctrl_c_detaches_and_leaves_the_task_alone(server: StandIn, away: bool) -> None:
    server.emit(StepStarted(step=1, description="long work"), END)
    server.hold_after = 1
    process = start(server, "run", "assistant", "hello")
    assert process.stdout and process.stderr
    while "Step 1" not in process.stdout.readline():
        assert process.poll() is None
    if away:
        server.stop()
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    if away:
        server.start()
    assert process.returncode == 130
    assert "the task continues" in stderr
    assert f"./errand attach {TASK} --after 1" in stderr and f"./errand cancel {TASK}" in stderr
    assert "Traceback" not in stderr
    assert server.asked_for(f"/tasks/{TASK}/cancel") == []


@pytest.mark.parametrize(
    ("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=["tty", "no", "dumb"]
)
def test_output_is_coloured_only_on_a_capable_terminal(server: StandIn, env: dict[str, str], coloured: bool) -> None:
    server.emit(StepStarted(step=1, description="paint"), END)
    terminal, theirs = pty.openpty()
    process = start(server, "run", "assistant", "hello", stdout=theirs, **env)
    process.communicate(timeout=20)
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    os.close(theirs)
    assert process.returncode == 0 and "Step 1: paint" in shown
    assert ("\x1b[" in shown) is coloured


def test_unanswered_submission_names_the_key_to_repeat_it_with(server: StandIn, cli: Cli) -> None:
    done = cli("run", "a", "b", "--json", "--idempotency-key", "k1", ERRAND_URL="http://127.0.0.1:9")
    assert done.exit_code == 6
    assert "--idempotency-key k1" in json.loads(done.stderr)["detail"]
