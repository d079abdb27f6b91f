"""The second try of failed tests: what it runs, what it refuses, what it prints, and what is proved afterwards."""

from pathlib import Path
from typing import Any

from tests.behaviour.suite.test_proves import Run
from tests.support.contract import page_of, read_items, table

FLAKY = """
from pathlib import Path
def first_time(name):
    mark = Path(name)
    seen = mark.exists()
    mark.touch()
    return not seen
"""
TESTS = (
    FLAKY
    + """
@proves("S0-01")
@pytest.mark.parametrize("n", [1, 2])
def test_flaky(n): assert n == 1 or not first_time("flaky")
@proves("S0-B02")
def test_good(): pass
@proves("D1")
def test_bad(): assert False
"""
)


def entry(run: Run, test: str) -> Any:
    return next(found for found in run.report["tests"] if found["test"] == f"test_it.py::{test}")


def test_second_try_runs_only_what_failed_and_says_so_at_the_end_and_in_the_table_of_proofs(tmp_path: Path) -> None:
    first = Run(tmp_path, TESTS)
    assert (first.code, first.proved) == (1, {"S0-B02"})
    again = Run(tmp_path, TESTS, "--second-try")
    assert again.code == 1 and "1 failed, 1 passed, 2 deselected" in again.output
    assert again.output.count("FLAKY") == 1
    assert "FLAKY test_it.py::test_flaky[2]: passed only in its second try" in again.output
    assert again.proved == {"S0-01", "S0-B02"} and "2 of 4 items proved" in again.output
    assert entry(again, "test_flaky")["second_try"] and "second_try" not in entry(again, "test_good")
    printed = table(read_items(page_of(tmp_path)), again.report)
    assert "passed only in its second try: test_it.py::test_flaky" in printed


MARKS = {
    "test_other.py": 'proves("D4")',
    "tests/faults/test_it.py": 'proves("S0-01")',
    "test_marked.py": "exactly_once",
    "test_kills.py": 'proves("S0-01")',
}


def test_crash_fault_and_exactly_once_tests_get_no_second_try(tmp_path: Path) -> None:
    page = "# C\n\n## One\n\n- **S0-01** First.\n- **D4** Never written twice.\n"
    for number, (file, mark) in enumerate(MARKS.items()):
        kill = "os.kill(os.getpid(), 0); " if "kills" in file else ""
        body = f'def test_flaky(): {kill}assert not first_time("{tmp_path}/mark-{number}")\n'
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"import os, pytest\n{FLAKY}\n@pytest.mark.{mark}\n{body}")
    for arguments in ([], ["--second-try"]):
        run = Run(tmp_path, "", *MARKS, *arguments, page=page)
        assert run.code == 1, run.output
    for file in MARKS:
        assert f"FAILED {file}::test_flaky: gets no second try" in run.output
    assert run.proved == set()
