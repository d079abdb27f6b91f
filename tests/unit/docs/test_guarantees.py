"""docs/guarantees.md names tests that exist, and gives one for every promise."""

import re

from settings import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_test_that_is_named_exists() -> None:
    def defines(file: str, test: str) -> bool:
        return re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE) is not None

    assert [f"{file}::{test}" for file, test in NAMED if not defines(file, test)] == []


def test_every_promise_has_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("| promise", "|---"))]
    assert len(rows) > 20
    for row in rows:
        assert re.fullmatch(r"\| [^|]+ \| (`tests/[\w/]+\.py::\w+`(, )?)+ \|", row), row
