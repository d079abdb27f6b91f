"""Rules of schedules: quiet hours by the clock of the zone, and combinations that make no sense."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from domain.schedules import QuietHours, ScheduleRules


def test_quiet_hours_past_midnight_follow_the_zone() -> None:
    quiet = QuietHours(start="22:00", end="07:00")
    assert quiet.cover(datetime(2026, 1, 10, 5, 59, tzinfo=UTC), "Europe/Berlin")  # 06:59 there
    assert not quiet.cover(datetime(2026, 1, 10, 6, 0, tzinfo=UTC), "Europe/Berlin")
    assert not quiet.cover(datetime(2026, 7, 10, 5, 0, tzinfo=UTC), "Europe/Berlin")  # in summer it is 07:00
    assert quiet.cover(datetime(2026, 7, 10, 20, 0, tzinfo=UTC), "Europe/Berlin")


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"cron": "* * * * *", "every": 1_000},
        {"cron": "61 * * * *"},
        {"cron": "* * * * *", "timezone": "Mars/Olympus"},
        {"every": 1_000, "overlap": "allow"},
        {"every": 1_000, "overlap": "queue", "context": "isolated"},
        {"every": 1_000, "overlap": "steer", "context": "fork"},
        {"every": 10},
        {"at": "2026-01-01T00:00:00"},  # no zone
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ScheduleRules.model_validate({"name": "x", **rules})


@pytest.mark.parametrize("cron", ["", "@daily", "* * * *"])
def test_a_short_cron_expression_is_refused_with_what_it_needs(cron: str) -> None:
    with pytest.raises(ValidationError, match="five fields are needed"):
        ScheduleRules.model_validate({"name": "x", "cron": cron})
