"""What scripts read: errors and lists as JSON."""

import json

import pytest
from errand.models import InputRequest

from cli.answering import parse_typed_value
from tests.unit.cli.conftest import Cli
from tests.unit.cli.stand_in import TASK, StandIn, complete


def test_errors_about_ids_are_json_with_the_candidates(server: StandIn, cli: Cli) -> None:
    server.answers["/tasks"] = {
        "items": [{"task_id": f"01aa{n}", "status": "working"} for n in range(2)],
        "next_cursor": None,
    }
    refused = cli("show", "01aa", "--json")
    error = json.loads(refused.stderr)
    assert refused.exit_code == 2 and error["candidates"] == ["01aa0", "01aa1"] and error["exit_code"] == 2
    server.answers["/input-requests"] = {"items": [], "next_cursor": None}
    refused = cli("answer", "yes", "--json")
    assert refused.exit_code == 4 and json.loads(refused.stderr)["detail"] == "no task is waiting for an answer"


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        (["run", "--json"], "Missing argument 'AGENT'"),
        (["tasks", "--limit", "0", "--json"], "Invalid value for '--limit': 0 is not in the range 1<=x<=200."),
        (["tasks", "--json", "--nope"], "No such option '--nope'"),
        (["taks", "--json"], "No such command 'taks'"),
        (["--nope", "tasks", "--json"], "No such option '--nope'"),
        (["files", "rm", "--json"], "Missing argument 'FILE...'"),
        (["chat", "--continue", "--resume", "--json"], "give only one of"),
    ],
)
def test_wrong_command_is_an_error_as_json(cli: Cli, arguments: list[str], detail: str) -> None:
    refused = cli(*arguments)
    error = json.loads(refused.stderr)
    assert refused.exit_code == error["exit_code"] == 2 and detail in error["detail"] and not refused.stdout
    plain = cli(*(one for one in arguments if one != "--json"))
    assert plain.exit_code == 2 and plain.stderr.startswith("Usage: ")


def test_json_after_two_dashes_is_no_option(cli: Cli) -> None:
    assert cli("tasks", "--", "--json").stderr.startswith("Usage: ")


def test_demos_are_listed_as_json_and_their_options_may_come_first(server: StandIn, cli: Cli) -> None:
    listed = json.loads(cli("demo", "--json").stdout)["items"]
    assert {"look", "slow"} <= {one["name"] for one in listed}
    assert cli("demo", "--detach", "slow").stdout == f"{TASK}\n"
    assert "is not one of look, slow" in cli("demo", "nonsense").stderr


def test_missing_token_is_an_error_as_json(cli: Cli) -> None:
    refused = cli("token", "--json")
    assert refused.exit_code == 6 and json.loads(refused.stderr)["exit_code"] == 6


def test_superscript_is_no_number_of_an_option() -> None:
    request = InputRequest.model_validate(complete(InputRequest, {"details": {"options": ["a", "b"]}}))
    assert parse_typed_value(request, "²") == "²" and parse_typed_value(request, "2") == "b"


def test_uploaded_files_are_listed(server: StandIn, cli: Cli) -> None:
    file = {"file_id": "01f", "name": "notes\x1b[31m.md", "size": 1_200, "created_at": "2026-03-01T12:00:00Z"}
    server.answers["/files"] = {"items": [file], "next_cursor": "c2"}
    shown = cli("files", "list", "--limit", "1")
    assert "01f   1.2 kB" in shown.stdout and "notes" in shown.stdout and "\x1b[31m" not in shown.stdout
    assert "files list --limit 1 --cursor c2" in shown.stderr and server.queries[-1] == {"own": "true", "limit": "1"}
    assert json.loads(cli("files", "list", "--all", "--json").stdout)["items"] == server.sent["items"]
    assert "own" not in server.queries[-1]
    server.answers["/files"] = {"items": [], "next_cursor": None}
    assert "no uploaded files" in cli("files", "list").stderr
