"""tests/contract.md says of each line whether a test proves it."""

from settings import ROOT
from tests.support.contract import claimed, page_of, read_items, with_marks


def test_each_line_of_the_contract_says_whether_a_test_proves_it() -> None:
    page = page_of(ROOT).read_text()
    assert page == with_marks(page, claimed(ROOT / "tests")), "run python -m tests.support.contract --write"
    assert set(read_items(page_of(ROOT))) >= claimed(ROOT / "tests")
    assert "✓\n" in page and "✗\n" in page
