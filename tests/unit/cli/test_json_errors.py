"""What scripts read: errors and lists as JSON."""

import json

from cli.answering import typed_value
from cli.client.request_models import RequestInfo
from tests.unit.cli.conftest import Cli
from tests.unit.cli.stand_in import TASK, StandIn


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


def test_demos_are_listed_as_json_and_their_options_may_come_first(server: StandIn, cli: Cli) -> None:
    listed = json.loads(cli("demo", "--json").stdout)["items"]
    assert {"look", "slow"} <= {one["name"] for one in listed}
    assert cli("demo", "--detach", "slow").stdout == f"{TASK}\n"
    assert "is not one of look, slow" in cli("demo", "nonsense").stderr


def test_missing_token_is_an_error_as_json(cli: Cli) -> None:
    refused = cli("token", "--json")
    assert refused.exit_code == 6 and json.loads(refused.stderr)["exit_code"] == 6


def test_superscript_is_no_number_of_an_option() -> None:
    asked = {"id": "r", "session_id": TASK, "kind": "question", "question": "?", "status": "open", "on_expiry": "fail"}
    asked |= {"created_at": "", "deadline": ""}
    request = RequestInfo.model_validate({**asked, "details": {"options": ["a", "b"]}})
    assert typed_value(request, "²") == "²" and typed_value(request, "2") == "b"
