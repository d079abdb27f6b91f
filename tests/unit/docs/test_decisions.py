"""The decisions of tests/contract.md cite items of the contract that a test proves."""

import re

import pytest

from settings import ROOT
from tests.support.contract import page_of, read_items

PAGE = page_of(ROOT)
DECISIONS = re.findall(r"^\| (C-\d+) \| .+ \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
PROVED = {
    item
    for file in (ROOT / "tests").rglob("test_*.py")
    for marked in re.findall(r"@pytest\.mark\.proves\(([^)]*)\)", file.read_text())
    for item in re.findall(r'"([^"]+)"', marked)
}


def test_all_decisions_are_there() -> None:
    assert [decision for decision, _ in DECISIONS] == [f"C-{number:02}" for number in range(1, 21)]


@pytest.mark.parametrize(("decision", "cited"), DECISIONS)
def test_decision_cites_items_that_are_proved(decision: str, cited: str) -> None:
    assert set(cited.split()) <= read_items(PAGE).keys() & PROVED
