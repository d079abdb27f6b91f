"""Running a command in this process, where no server is."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import errand

Cli = Callable[..., Result]
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """`cli("tasks", "--json")` runs the command: its output and exit code."""

    def call(*args: str, input: str | bytes | None = None, **env: str) -> Result:
        here = {"ERRAND_DATA_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
        environment = {**here, "ERRAND_URL": NOWHERE, "ERRAND_API_KEY": "", **env}
        return CliRunner().invoke(errand, list(args), input=input, env=environment, prog_name="./errand")

    return call
