"""Proofs of contract items in small test runs: what counts as proved, and what fails a run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from settings import ROOT
from tests.support.contract import page_of, proofs

PAGE = "# C\n\n## One\n\n- **S0-01** First.\n- **S0-B02** Second.\n\n## Two\n\n- **D1** Third.\n- **F-04** Fourth.\n"
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class Run:
    def __init__(self, root: Path, tests: str, *args: str, page: str = PAGE) -> None:
        page_of(root).parent.mkdir(exist_ok=True)
        page_of(root).write_text(page)
        (root / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
        (root / "test_it.py").write_text(f"import pytest\nproves = pytest.mark.proves\n{tests}")
        plugins = ["-p", "tests.support.proves", "-p", "tests.support.second_try", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *plugins, *args]
        done = subprocess.run(command, cwd=root, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        self.code, self.output = done.returncode, done.stdout + done.stderr
        path = root / "build" / "contract.json"
        self.report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    @property
    def proved(self) -> set[str]:
        return set(proofs(self.report))


OUTCOMES = """
@proves("D1")
def test_passes(): pass
@proves("D2")
def test_skips(): pytest.skip("not today")
@proves("D3")
def test_fails(): assert False
@pytest.mark.xfail
@proves("D4")
def test_expected_to_fail(): assert False
@pytest.mark.xfail(strict=False)
@proves("D5")
def test_expected_to_fail_but_passes(): pass
@pytest.fixture
def breaks():
    yield
    raise RuntimeError
@proves("D6")
def test_whose_teardown_breaks(breaks): pass
@proves("D7")
@pytest.mark.parametrize("n", [1, 2])
def test_every_parameter(n): pass
@proves("D8")
@pytest.mark.parametrize("n", [1, 2])
def test_one_parameter(n): assert n == 1
"""


@pytest.mark.parametrize(("chosen", "proved"), [((), {"D1", "D7"}), (("-k", "passes or 1"), {"D1"})])
def test_only_tests_that_ran_and_passed_with_every_parameter_prove_items(
    tmp_path: Path, chosen: tuple[str, ...], proved: set[str]
) -> None:
    page = "# C\n\n## One\n\n" + "".join(f"- **D{number}** Item.\n" for number in range(1, 9))
    run = Run(tmp_path, OUTCOMES, *chosen, page=page)
    assert run.proved == proved and f"{len(proved)} of 8 items proved" in run.output


def test_wrong_claims_fail_the_run_though_the_tests_pass(tmp_path: Path) -> None:
    wrong = ('"S9-99"', '"S0-01", "S0-B02", "D1", "F-04"', "", '"s0-01"', "7")
    run = Run(tmp_path, "".join(f"@proves({ids})\ndef test_{n}(): pass\n" for n, ids in enumerate(wrong)))
    assert run.code == 1 and len(run.report["problems"]) == len(wrong)
    assert all(f"ERROR contract: test_it.py::test_{number}" in run.output for number in range(len(wrong)))
