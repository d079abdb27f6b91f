"""Every command with bad input, a dead server, a wrong key and a server of another kind: one clear line, never a
traceback."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click.testing import CliRunner
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from temporalio.runtime import Runtime

from cli.errors import Exit
from cli.main import errand
from tests.support.answers import Answers
from tests.unit.cli.conftest import Cli

UNKNOWN = "0" * 26
BAD = ["", UNKNOWN, "../../é\x1b[31m", "-1"]
DEAD = "http://127.0.0.1:1"
PROBLEM = {"type": "urn:errand:problem:unauthenticated", "detail": "A key is needed."}
EMPTY: dict[str, object] = {"items": [], "next_cursor": None}
ANSWERS: dict[str, Callable[[Request], Response]] = {
    "wrong key": lambda _: JSONResponse(PROBLEM, 401),
    "broken": lambda _: Response("boom", 500),
    "a page": lambda _: Response("<html>", media_type="text/html"),
    "a list": lambda _: JSONResponse([]),
    "an empty object": lambda _: JSONResponse({}),
}


def leaves(group: click.Group, *path: str) -> Iterator[tuple[list[str], click.Command]]:
    context = click.Context(errand)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        elif command is not None and (*path, name) not in {("up",), ("down",)}:
            yield [*path, name], command


def given(command: click.Command, value: str) -> list[str]:
    options = [[one.opts[0], value] for one in command.params if isinstance(one, click.Option) and one.required]
    count = sum(max(1, one.nargs) for one in command.params if isinstance(one, click.Argument))
    return [*(one for option in options for one in option), "--", *[value] * count]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep commands that read histories from setting Temporal's runtime and ending this process."""

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    monkeypatch.setattr("cli.temporal.os._exit", leave)
    monkeypatch.setattr(Runtime, "set_default", lambda runtime: None)


def check(arguments: list[str], url: str, home: Path) -> None:
    elsewhere = {"ERRAND_DATABASE_URL": "postgresql://nobody:x@127.0.0.1:1/none", "TEMPORAL_ADDRESS": "127.0.0.1:1"}
    folders = {"ERRAND_DATA_DIR": str(home), "XDG_STATE_HOME": str(home)}
    done = CliRunner().invoke(errand, arguments, input="", env={"ERRAND_URL": url, **elsewhere, **folders})
    assert done.exception is None or isinstance(done.exception, SystemExit), (arguments, done.exc_info)
    assert done.exit_code in set(Exit), (arguments, done.exit_code)
    assert done.exit_code == 0 or done.stderr.strip() or done.stdout.strip(), arguments
    assert "Traceback" not in done.output, arguments


def test_bad_input_is_a_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, command in leaves(errand):
        for value in BAD:
            check([*arguments, *given(command, value)], DEAD, tmp_path)


@pytest.mark.parametrize("command", ["schedules", "variables"])
def test_list_has_every_page(command: str, tmp_path: Path) -> None:
    def respond(request: Request) -> Response:
        more = "cursor" not in request.query_params
        return JSONResponse({"items": [{"id": "first" if more else "last"}], "next_cursor": "more" if more else None})

    with Answers() as server:
        server.respond = respond
        env = {"ERRAND_URL": server.url, "XDG_STATE_HOME": str(tmp_path)}
        done = CliRunner().invoke(errand, [command, "list", "--json"], env=env)
    assert [one["id"] for one in json.loads(done.stdout)["items"]] == ["first", "last"]


@pytest.mark.parametrize(
    "group",
    [
        *("agents", "credentials", "deliveries", "environments"),
        *("schedules", "subscriptions", "triggers", "variables"),
    ],
)
def test_group_without_a_command_lists(group: str, cli: Cli) -> None:
    with Answers() as server:
        server.respond = lambda _: JSONResponse(EMPTY)
        listed, shown = cli(group, "--json", ERRAND_URL=server.url), cli(group, ERRAND_URL=server.url)
    assert json.loads(listed.stdout)["items"] == []
    assert (shown.exit_code, shown.stdout) == (0, "") and shown.stderr.startswith(("no", "there is no"))


@pytest.mark.parametrize("kind", ANSWERS)
def test_answer_of_another_kind_is_a_clear_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Answers() as server:
        server.respond = ANSWERS[kind]
        for arguments, command in leaves(errand):
            check([*arguments, *given(command, UNKNOWN)], server.url, tmp_path)
