"""Commands where no server can be reached: what is wrong with them is found before; the rest ends with code 6."""

import json

import pytest
from errand.models import InputRequest

from cli.answering import parse_typed_value
from tests.unit.cli.conftest import NOWHERE, Cli


@pytest.mark.parametrize(
    "args",
    [
        ["run", "a"],
        ["run", "a", "text", "--input-json", "-"],
        ["run", "a", "--input-json", "-"],
        ["run", "a", "text", "--ttl", "10"],
        ["run", "a", "text", "--ref", "x", "--ref", "y"],
        ["run", "a", "text", "--file", "/no/such/file"],
        ["run", "a", "text", "--permission", "bash"],
        ["run", "a", "bad \udcff text"],
        ["run", "a", "text", "--max-cost", "nan"],
        ["answer", "--json-value", '{"n": 1e999}', "x", "y"],
        ["answer", "--json-value", "NaN", "x", "y"],
        ["approve", "--arguments", '{"n": -Infinity}'],
        ["run", "a", "text", "--key", "schlüssel"],
        ["run", "a", "text", "--url", "localhost:8700"],
        ["chat", "--continue", "--resume"],
        ["environments", "set", "b ad/x", "https://example.org/a.git"],
        ["schedules", "add", "x", "assistant", "hi"],
        ["schedules", "add", "x", "assistant", "hi", "--every", "1h", "--at", "2027-01-01T09:00:00Z"],
        ["audit", "0" * 26, "--head", "0" * 64],
        ["demo", "nonsense"],
    ],
)
def test_wrong_command_is_exit_code_2(cli: Cli, args: list[str]) -> None:
    done = cli(*args, input="[1, 2]")
    assert (done.exit_code, done.stdout) == (2, "") and "Error: " in done.stderr


@pytest.mark.parametrize("args", [["tasks"], ["attach", "0" * 26], ["chat", "--continue"]])
def test_unreachable_server_is_exit_code_6(cli: Cli, args: list[str]) -> None:
    done = cli(*args)
    assert done.exit_code == 6 and f"cannot reach the API at {NOWHERE}" in done.stderr and "./errand up" in done.stderr
    assert json.loads(cli(*args, "--json").stderr)["exit_code"] == 6


@pytest.mark.parametrize("text", ["NaN", "[1e999]", "[" * 100_000])
def test_what_json_cannot_hold_stays_the_text_that_was_typed(text: str) -> None:
    wants_more = InputRequest.model_construct(details={}, answer_schema={"type": "number"})
    assert parse_typed_value(wants_more, text) == text


def test_unanswered_submission_names_the_key_to_repeat_it_with(cli: Cli) -> None:
    done = cli("run", "a", "b", "--json", "--idempotency-key", "k1")
    assert done.exit_code == 6 and "--idempotency-key k1" in json.loads(done.stderr)["detail"]
