"""Rules of schedules: quiet hours by the clock of the zone, combinations that make no sense, and cron expressions."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from api.routes.schedules import BackfillBody
from domain.missions import MissionRules
from domain.schedules import CronError, QuietHours, Timing, check_cron, expressions, time_problem


def test_quiet_hours_past_midnight_follow_the_zone() -> None:
    quiet = QuietHours(start="22:00", end="07:00")
    assert quiet.cover(datetime(2026, 1, 10, 5, 59, tzinfo=UTC), "Europe/Berlin")  # 06:59 there
    assert not quiet.cover(datetime(2026, 1, 10, 6, 0, tzinfo=UTC), "Europe/Berlin")
    assert not quiet.cover(datetime(2026, 7, 10, 5, 0, tzinfo=UTC), "Europe/Berlin")  # in summer it is 07:00
    assert quiet.cover(datetime(2026, 7, 10, 20, 0, tzinfo=UTC), "Europe/Berlin")


@pytest.mark.parametrize(
    ("start", "end", "covered"),
    [("09:00", "12:00", ["09:00", "11:59"]), ("12:00", "09:00", ["08:59", "12:00", "12:01"]), ("09:00", "09:00", [])],
)
def test_quiet_hours_begin_at_their_start_and_are_over_at_their_end(start: str, end: str, covered: list[str]) -> None:
    times = ["08:59", "09:00", "11:59", "12:00", "12:01"]
    quiet = QuietHours(start=start, end=end)
    found = [one for one in times if quiet.cover(datetime.fromisoformat(f"2026-01-10T{one}:00+00:00"), "UTC")]
    assert found == covered


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("* * * *", "five fields"),
        ("60 * * * *", "minute"),
        ("* * 0 * *", "day of month"),
        ("*/0 * * * *", "step"),
        ("30-10 * * * *", "range"),
        ("0 0 * FOO *", "month"),
        ("0 0 30 2 *", "no such day"),
        ("0 0 31 4,6,9,11 *", "no such day"),
        ("* * * * \u017fun", "ASCII"),
    ],
)
def test_invalid_expressions_are_named(text: str, named: str) -> None:
    with pytest.raises(CronError, match=named):
        check_cron(text)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_times_that_have_no_date_in_utc_are_refused(at: str) -> None:
    for kind, fields in ((Timing, ["at"]), (MissionRules, ["expires_at"]), (BackfillBody, ["start", "end"])):
        with pytest.raises(ValidationError) as refused:
            kind.model_validate(dict.fromkeys(fields, at))
        assert [one["type"] for one in refused.value.errors()] == ["time_range"] * len(fields)


def test_a_time_within_the_present_second_is_over() -> None:
    now = datetime.now(UTC)
    assert time_problem(now.replace(microsecond=999_999)) and not time_problem(now + timedelta(seconds=60))


def test_day_of_month_and_day_of_week_are_alternatives() -> None:
    assert expressions("0 9 1 * MON") == ["0 9 1 * *", "0 9 * * MON"]
    check_cron("0 0 30 2 MON")
    for one_restricts in ("0 0 29 2 *", "0 9 * * MON", "0 9 1 * *", "0 9 */2 * MON", "0 9 1 * */2", "0 9 * * *"):
        assert expressions(one_restricts) == [one_restricts]  # a field that begins with * restricts nothing in cron
