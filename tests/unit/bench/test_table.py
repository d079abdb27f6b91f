"""The table's figures are computed from the measurements as its headings say."""

import json

import pytest

from bench.__main__ import as_json, as_table
from bench.table import Aim, Row, Spread

STEP = Row("step", "ms", [30.0, 90.0, 60.0], [20.0, 45.0, 60.0], [30.0, 60.0, 50.0], Aim(high=1.5))


def test_a_ratio_is_taken_within_its_round() -> None:
    assert STEP.to_bare == Spread(1.5, 1.0, 2.0)  # 1.5, 2.0, 1.0: not 60 / 45, the ratio of the medians
    assert STEP.to_calling == Spread(1.2, 1.0, 1.5)


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (Aim(high=1.5), True),
        (Aim(high=1.4), False),
        (Aim(high=59, of_value=True), False),
        (Aim(high=60, of_value=True), True),
        (Aim(low=0.95, high=1.05), False),
    ],
)
def test_aim_judges_the_median(aim: Aim, met: bool) -> None:
    assert Row("step", "ms", STEP.ours, STEP.bare, aim=aim).met is met


def test_report_is_one_object() -> None:
    document = json.loads(as_json([STEP, Row("flat", "ratio", [1.01])], rounds=3))
    step, flat = document["rows"]
    assert document["rounds"] == 3
    assert step["ours"] == {"median": 60.0, "low": 30.0, "high": 90.0}
    assert step["ratio_to_bare"]["median"] == 1.5
    assert step["aim"] == "<= 1.5" and step["aim_of"] == "ratio_to_bare" and step["met"] is True
    assert flat["bare"] is None and flat["ratio_to_bare"] is None and flat["met"] is None


def test_report_is_one_table() -> None:
    lines = as_table([STEP, Row("flat", "ratio", [1.01], aim=Aim(high=1.0, of_value=True))], rounds=3).splitlines()
    assert lines[0].startswith("rounds: 3")
    assert " ".join(lines[4].split()) == "step, ms 60 45 1.50 [1.00-2.00] 50 1.20 [1.00-1.50] <= 1.5 yes"
    assert " ".join(lines[5].split()) == "flat, ratio 1.01 <= 1 of ours NO"
