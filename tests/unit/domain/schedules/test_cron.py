"""Cron expressions have five fields; errors name the wrong field; day of month and day of week are alternatives."""

import pytest

from domain.schedules import CronError, check_cron, expressions, per_day


@pytest.mark.parametrize(
    "text", ["*/15 * * * *", "30 7 * * MON-FRI", "0 0 29 2 *", "0 9-17/2 1,15 JAN,jul *", "5 4 * * 7", "0 0 31 2 1"]
)
def test_valid_expressions(text: str) -> None:
    check_cron(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("* * * *", "five fields"),
        ("0 * * * * *", "five fields"),
        ("@daily", "five fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"),
        ("*/0 * * * *", "step"),
        ("30-10 * * * *", "range"),
        ("5/15 * * * *", "minute"),
        ("0 0 30 2 *", "no month"),
        ("0 0 * FOO *", "month"),
        ("0 0 ? * *", "day of month"),
    ],
)
def test_invalid_expressions_are_named(text: str, named: str) -> None:
    with pytest.raises(CronError, match=named):
        check_cron(text)


def test_day_of_month_and_day_of_week_are_alternatives() -> None:
    assert expressions("0 9 1 * MON") == ["0 9 1 * *", "0 9 * * MON"]
    assert expressions("0 9 * * MON") == ["0 9 * * MON"]


def test_runs_per_day_are_counted() -> None:
    assert per_day("*/15 * * * *") == 96
    assert per_day("0 9,17 * * *") == 2
