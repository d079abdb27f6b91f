"""A stand-in server for the commands, and running a command in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cli.main import errand
from tests.unit.cli.stand_in import StandIn

Cli = Callable[..., Result]


@pytest.fixture
def server() -> Iterator[StandIn]:
    stand_in = StandIn()
    stand_in.start()
    yield stand_in
    stand_in.stop()


@pytest.fixture
def cli(server: StandIn, tmp_path: Path) -> Cli:
    """`cli("tasks", "--json")` runs the command: its output and exit code."""

    def call(*args: str, input: str | bytes | None = None, **env: str) -> Result:
        here = {"ERRAND_DATA_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        environment = {**here, "ERRAND_URL": server.url, "ERRAND_API_KEY": "", **env}
        return CliRunner().invoke(errand, list(args), input=input, env=environment, prog_name="./errand")

    return call


def ndjson(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
