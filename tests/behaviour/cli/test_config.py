"""Settings from the environment, `.env` and `errand.toml`, as `errand config` shows them."""

import json
import re
import shutil
from pathlib import Path

import pytest

from settings import ROOT
from tests.support.terminal import Terminal


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A separate checkout, so that the settings files of this one have no effect."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name == "settings.py":
            shutil.copy(path, folder / path.name)  # copied, because a link would lead back to this checkout
        elif path.suffix in ("", ".toml") and not path.name.startswith("."):
            (folder / path.name).symlink_to(path)
    return folder


def errand(checkout: Path, *args: str, **env: str) -> tuple[int, str]:
    environment = {"PYTHONPATH": str(checkout), "XDG_STATE_HOME": str(checkout), "NO_COLOR": "1", **env}
    with Terminal(*args, env=environment, cwd=checkout, bound_by_modes=True) as shown:
        return shown.exit_code(), shown.text


def test_environment_decides_before_dotenv_and_that_before_the_toml_file(checkout: Path) -> None:
    (checkout / "errand.toml").write_text('port = 9001\nlive_tasks = 7\nrequire_keys = true\nallow_ports = ["80"]\n')
    (checkout / ".env").write_text("ERRAND_PORT=9002\nexport ERRAND_API_KEY='s3cret'\nOTHER=ignored\n")
    code, shown = errand(checkout, "config", "--json", ERRAND_LIVE_TASKS="9")
    assert code == 0, shown
    found = {one["name"]: (one["value"], one["source"]) for one in json.loads(shown)["items"]}
    assert found["ERRAND_PORT"] == ("9002", ".env")
    assert found["ERRAND_LIVE_TASKS"] == ("9", "environment")
    assert found["ERRAND_REQUIRE_KEYS"] == ("true", "errand.toml") and found["ERRAND_ALLOW_PORTS"][0] == "80"
    assert found["ERRAND_API_KEY"] == ("***", ".env") and "s3cret" not in shown and "OTHER" not in found
    code, shown = errand(checkout, "config", "--all")
    assert code == 0 and "ERRAND_MAX_STEPS" in shown and "default" in shown
    code, shown = errand(checkout, "config", "--json", ERRAND_PORT="")
    # an empty variable removes the setting
    assert "ERRAND_PORT" not in {one["name"] for one in json.loads(shown)["items"]}


def test_passwords_in_addresses_are_masked(checkout: Path) -> None:
    (checkout / ".env").write_text("ERRAND_API_DATABASE_URL=postgresql://h/db?user=api&password=tuna&sslmode=require\n")
    given = {
        "ERRAND_DATABASE_URL": "postgresql://owner:tu/n@a@db.example:5432/errand?sslmode=require",
        "ERRAND_WORKER_DATABASE_URL": "host=db password='tu na' user=worker",
        "ANTHROPIC_BASE_URL": "https://me:tuna@models.example/v1",
    }
    code, shown = errand(checkout, "config", "--json", **given)
    assert code == 0 and not re.search("tu.{0,2}na", shown), shown
    found = {one["name"]: one["value"] for one in json.loads(shown)["items"]}
    assert found["ERRAND_DATABASE_URL"] == "postgresql://owner:***@db.example:5432/errand?sslmode=require"
    assert found["ERRAND_API_DATABASE_URL"] == "postgresql://h/db?user=api&password=***&sslmode=require"
    assert found["ERRAND_WORKER_DATABASE_URL"] == "host=db password=*** user=worker"
    assert found["ANTHROPIC_BASE_URL"] == "https://me:***@models.example/v1"
    code, shown = errand(checkout, "config", **given)
    assert code == 0 and not re.search("tu.{0,2}na", shown) and "db.example" in shown


def test_misspelt_variable_is_reported_with_a_suggestion_and_nothing_starts(checkout: Path) -> None:
    home = checkout / "data"
    given = {"ERRAND_PROT": "8701", "ERRAND_DATA_DIR": str(home), "ERRAND_VENV": "/venv"}
    for command in ("config", "up"):
        code, shown = errand(checkout, command, **given)
        text = " ".join(shown.split())
        assert code == 2 and "there is no setting ERRAND_PROT (did you mean ERRAND_PORT?); allowed are: " in text, shown
        assert "ERRAND_MAX_STEPS" in text and "ERRAND_VENV" not in text and not home.exists()
