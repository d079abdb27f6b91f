"""The planted bugs (`python -m tests.planted`) still match the code; running them is not part of the suite."""

from collections import Counter
from collections.abc import Iterator

from settings import ROOT
from tests.planted.__main__ import BUGS
from tests.planted.bug import Bug


def misfits(bug: Bug) -> Iterator[str]:
    if (ROOT / bug.file).read_text().count(bug.old) != 1 or bug.old == bug.new:
        yield f"{bug.file} changed: plant {bug.name!r} elsewhere"
    for test in bug.tests:
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text() if (ROOT / path).exists() else ""
        if not text or f"def {function.partition('[')[0]}" not in text:
            yield f"{bug.name!r}: there is no {test}"


def test_planted_text_and_the_tests_that_should_notice_exist() -> None:
    assert [problem for bug in BUGS for problem in misfits(bug)] == []


def test_every_planted_bug_is_different() -> None:
    assert len(BUGS) >= 30
    assert not [name for name, count in Counter(bug.name for bug in BUGS).items() if count > 1]
    assert len({(bug.file, bug.old, bug.new) for bug in BUGS}) == len(BUGS)
