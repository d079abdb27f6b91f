"""Settings reach the stack's processes as environment variables, unchanged."""

from dataclasses import fields
from pathlib import Path

import pytest

from deploy.stack import variables
from domain.sessions.new_session import RETENTION_MS
from domain.sessions.session import Limits
from domain.sessions.writes import LOW_PERCENT
from settings import Settings, SettingsError


def test_settings_survive_conversion_to_environment_variables() -> None:
    changed = {
        "database_url": "postgresql://db/errand",
        "anthropic_api_key": "key",
        "data_dir": Path("/data"),
        "port": 9000,
        "max_cost_usd": 1.5,
        "sandbox": "bwrap",
        "allow_private_hosts": ("intranet", "10.0.0.7"),
    }
    assert changed.keys() <= {field.name for field in fields(Settings)}
    settings = Settings(**changed)  # type: ignore[arg-type]
    assert Settings.from_env(variables(settings)) == settings
    assert Settings.from_env(variables(Settings())) == Settings()


def test_settings_have_the_defaults_of_the_domain() -> None:
    """Settings import no models, so both must define the same defaults for omitted fields."""
    known = Settings()
    assert (known.retention_ms, known.budget_low_percent) == (RETENTION_MS, LOW_PERCENT)
    assert (known.loop_warning, known.loop_limit) == (Limits().repeats_warning, Limits().repeats)


def test_tokens_do_not_end_a_task_before_its_steps_do() -> None:
    """This holds even if each step has half a million tokens of context."""
    assert Settings().max_tokens >= Settings().max_steps * 500_000


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"ERRAND_LOOP_WARNING": "8", "ERRAND_LOOP_LIMIT": "8"}, "ERRAND_LOOP_WARNING"),
        ({"ERRAND_LOOP_WARNING": "0"}, "ERRAND_LOOP_WARNING"),
        ({"ERRAND_BUDGET_LOW_PERCENT": "101"}, "ERRAND_BUDGET_LOW_PERCENT"),
        ({"ERRAND_CANCEL_HEARTBEAT_SECONDS": "0"}, "from 0.5 to 15"),
        ({"ERRAND_CANCEL_HEARTBEAT_SECONDS": "16"}, "from 0.5 to 15"),
        ({"ERRAND_CANCEL_HEARTBEAT_SECONDS": "nan"}, "ERRAND_CANCEL_HEARTBEAT_SECONDS"),
        ({"ERRAND_VARIABLES": "REGION=north,TOWN"}, "NAME=VALUE"),
        ({"ERRAND_VARIABLES": "TOWN="}, "NAME=VALUE"),
        ({"ERRAND_VARIABLES": "a b=x"}, "NAME=VALUE"),
        ({"ERRAND_VARIABLES": "TOWN=sealed:x"}, "NAME=VALUE"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.from_env(wrong)


def test_relative_paths_become_absolute() -> None:
    assert variables(Settings(data_dir=Path("here")))["ERRAND_DATA_DIR"] == str(Path.cwd() / "here")
