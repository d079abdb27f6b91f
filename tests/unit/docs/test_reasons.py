"""The page about limits names every reason for an end, its status, and an existing test."""

import re

from domain.sessions.session import Reason
from settings import ROOT

_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| [^|]+ \| (?:`([\w/.]+)::(\w+)` )?\|$", re.MULTILINE)


def test_every_reason_is_documented_with_the_test_that_reaches_it() -> None:
    rows = _ROW.findall((ROOT / "docs" / "limits.md").read_text().split("## Every end")[1])
    assert {name: status for name, status, _, _ in rows} == {reason: reason.status for reason in Reason}
    assert [name for name, _, file, _ in rows if not file] == []
    for _, _, file, test in rows:
        if file:
            assert f"def {test}(" in (ROOT / file).read_text(), test
