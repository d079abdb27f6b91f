"""The planted bugs (`python -m tests.planted`) still match the code; running them is not part of the suite."""

from collections import Counter

import pytest

from settings import ROOT
from tests.planted.__main__ import BUGS, TOPICS, chosen_by
from tests.planted.bug import Bug


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_planted_text_and_the_tests_that_should_notice_exist(bug: Bug) -> None:
    assert (ROOT / bug.file).read_text().count(bug.old) == 1, f"{bug.file} changed: plant {bug.name!r} elsewhere"
    assert bug.old != bug.new
    for test in bug.tests:
        path, _, function = test.partition("::")
        assert (ROOT / path).exists(), path
        assert not function or f"def {function.partition('[')[0]}(" in (ROOT / path).read_text(), test


def test_every_planted_bug_is_different() -> None:
    assert len(BUGS) >= 30
    assert not [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1]
    assert len({(bug.file, bug.old, bug.new) for bug in BUGS}) == len(BUGS)


def test_topics_and_texts_choose_bugs() -> None:
    assert chosen_by(()) == BUGS and chosen_by(("graphs",)) == TOPICS["graphs"]
    [one] = chosen_by(("a success beats a failure",))
    assert one in TOPICS["graphs"] and one in chosen_by(("security", one.name)) and chosen_by(("no such bug",)) == []
