"""Following a task over broken connections: every event is shown once, in order, until the retries are used up."""

import threading

import pytest

from domain.events import MessageDelta, StepStarted, TaskCompleted, TaskStarted
from domain.sessions.session import Reason, Status, Usage
from tests.unit.cli.conftest import Cli, ndjson
from tests.unit.cli.stand_in import TASK, StandIn

END = TaskCompleted(status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage())
PIECES = [MessageDelta(step=1, text=f"word{number} ") for number in range(20)]


@pytest.fixture
def streaming(server: StandIn) -> StandIn:
    server.emit(TaskStarted(model="m"), StepStarted(step=1, description="write"), *PIECES, END)
    return server


def seqs(text: str) -> list[int]:
    return [event["seq"] for event in ndjson(text)]


@pytest.mark.parametrize("replay_all", [False, True])
def test_attach_over_cut_connections_has_no_gap_or_duplicate(streaming: StandIn, cli: Cli, replay_all: bool) -> None:
    streaming.cut_after = [3, 3, 9]
    streaming.replay_all = replay_all
    done = cli("attach", TASK, "--json")
    assert done.exit_code == 0
    assert seqs(done.stdout) == list(range(1, 24))
    assert [headers.get("last-event-id") for headers in streaming.streams] == [None, "3", "3", "9"]
    assert "connection lost" in done.stderr


def test_stream_closed_by_the_server_is_opened_again(streaming: StandIn, cli: Cli) -> None:
    streaming.close_after = 5
    done = cli("run", "assistant", "write", "--json")
    assert (done.exit_code, seqs(done.stdout)) == (0, list(range(1, 24)))


def test_transient_refusals_are_waited_out_and_others_raised(streaming: StandIn, cli: Cli) -> None:
    path = f"/tasks/{TASK}/events"
    streaming.refusals[path] = (503, {"type": "dependency-unavailable", "status": 503, "detail": "away"})
    threading.Timer(0.6, streaming.refusals.clear).start()
    done = cli("attach", TASK, "--json")
    assert (done.exit_code, seqs(done.stdout)) == (0, list(range(1, 24)))
    streaming.refusals[path] = (403, {"type": "insufficient-scope", "status": 403, "detail": "no"})
    assert cli("attach", TASK).exit_code == 5


def test_lost_patience_names_the_command_that_resumes(streaming: StandIn, cli: Cli) -> None:
    streaming.hold_after = 4
    threading.Timer(0.6, streaming.stop).start()
    done = cli("attach", TASK, "--patience", "1s")
    assert done.exit_code == 6
    assert f"./errand attach {TASK} --after 4" in done.stderr
    assert "The task continues" in done.stderr


def test_attach_after_the_last_event_of_a_finished_task_returns(streaming: StandIn, cli: Cli) -> None:
    assert seqs(cli("attach", TASK, "--after", "21", "--json").stdout) == [22, 23]
    done = cli("attach", TASK, "--after", "23", "--json")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "the task is completed" in done.stderr
