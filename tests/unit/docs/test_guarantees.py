"""docs/guarantees.md names tests that exist, and gives one for every promise."""

import ast
import re

import pytest

from settings import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_test_that_is_named_exists(file: str, test: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert test in defined


def test_every_promise_has_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("| promise", "|---"))]
    assert len(rows) > 20
    for row in rows:
        assert re.fullmatch(r"\| [^|]+ \| (`tests/[\w/]+\.py::\w+`(, )?)+ \|", row), row
