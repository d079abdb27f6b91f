"""Proofs of contract items in small test runs: what counts as proved, what fails a run, and what is printed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from settings import ROOT
from tests.support import contract
from tests.support.contract import page_of, proofs, read_items, table

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


def test_only_tests_that_ran_and_passed_prove_items(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        """
@proves("S0-01")
def test_passes(): pass
@proves("S0-B02")
def test_skips(): pytest.skip("not today")
@proves("D1")
def test_fails(): assert False
@pytest.mark.xfail
@proves("F-04")
def test_expected_to_fail(): assert False
""",
    )
    assert run.proved == {"S0-01"}
    assert "1 of 4 items proved" in run.output


def test_unexpected_pass_and_broken_teardown_prove_nothing(tmp_path: Path) -> None:
    run = Run(
        tmp_path,
        """
@pytest.mark.xfail(strict=False)
@proves("S0-01")
def test_expected_to_fail_but_passes(): pass
@pytest.fixture
def breaks():
    yield
    raise RuntimeError
@proves("D1")
def test_with_it(breaks): pass
""",
    )
    assert run.proved == set()


PARAMETRISED = """
@proves("S0-01")
@pytest.mark.parametrize("n", [1, 2])
def test_all(n): pass
@proves("D1")
@pytest.mark.parametrize("n", [1, 2])
def test_some(n): assert n == 1
"""


def test_parametrised_test_must_pass_with_every_parameter(tmp_path: Path) -> None:
    assert Run(tmp_path, PARAMETRISED).proved == {"S0-01"}


def test_parametrised_test_with_deselected_parameters_proves_nothing(tmp_path: Path) -> None:
    assert Run(tmp_path, PARAMETRISED, "-k", "1").proved == set()


@pytest.mark.parametrize("ids", ['"S9-99"', '"S0-01", "S0-B02", "D1", "F-04"', "", '"s0-01"', "7"])
def test_wrong_claim_fails_the_run_though_the_test_passes(tmp_path: Path, ids: str) -> None:
    run = Run(tmp_path, f"@proves({ids})\ndef test_it(): pass\n")
    assert run.code == 1
    assert "ERROR contract: test_it.py::test_it" in run.output
    assert len(run.report["problems"]) == 1


HELPER = """
@proves("S0-01")
def {name}(): pass
def test_it(): pass
"""


@pytest.mark.parametrize("name", ["helper", "TestLike"])
def test_collection_fails_on_a_proof_that_is_no_test(tmp_path: Path, name: str) -> None:
    run = Run(tmp_path, HELPER.format(name=name))
    assert run.code == pytest.ExitCode.INTERRUPTED
    assert f"{name} is marked as a proof and is no test" in run.output
    assert run.proved == set()


HIDDEN = {
    "a method of a helper": "class Helper:\n    @proves('S0-01')\n    def play(self): pass\n",
    "a nested function": "def test_outer():\n    @proves('S0-01')\n    def play(): pass\n",
    "a nested class": "class TestOuter:\n    class Helper:\n        @proves('D1')\n        def play(self): pass\n",
}


@pytest.mark.parametrize("source", HIDDEN.values(), ids=HIDDEN)
def test_collection_fails_on_a_proof_that_pytest_never_sees(tmp_path: Path, source: str) -> None:
    run = Run(tmp_path, f"{source}def test_it(): pass\n")
    assert run.code == pytest.ExitCode.INTERRUPTED and "play is marked as a proof and is no test" in run.output


def test_methods_of_a_test_class_prove_items(tmp_path: Path) -> None:
    marked = "    @proves('S0-01')\n    def test_it(self): pass\n"
    assert Run(tmp_path, f"class TestIt:\n{marked}").proved == {"S0-01"}


def test_collection_fails_on_an_imported_helper_that_claims_a_proof(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("import pytest\n@pytest.mark.proves('D1')\ndef helper(): pass\n")
    run = Run(tmp_path, "from helpers import helper\ndef test_it(): pass\n")
    assert run.code == pytest.ExitCode.INTERRUPTED and "helper is marked as a proof" in run.output


def test_collecting_alone_writes_no_report(tmp_path: Path) -> None:
    run = Run(tmp_path, '@proves("S0-01")\ndef test_it(): pass\n', "--collect-only")
    assert run.code == 0 and run.report == {}


def test_table_counts_by_group_and_names_tests_and_problems(tmp_path: Path) -> None:
    page = tmp_path / "contract.md"
    page.write_text(PAGE)
    report = {
        "at": "now",
        "args": ["-q"],
        "problems": ["t.py::test_c: unknown X-1"],
        "tests": [{"test": "t.py::test_a", "proves": ["S0-01", "F-04"], "passed": True}],
    }
    short, long = (table(read_items(page), report, verbose) for verbose in (False, True))
    assert [line.split() for line in short.splitlines()[1:4]] == [
        ["One", "1", "2", "S0-B02"],
        ["Two", "1", "2", "D1"],
        ["all", "2", "4"],
    ]
    assert "t.py::test_c: unknown X-1" in short and "only what it ran" in short
    assert "t.py::test_a" in long and "t.py::test_a" not in short


def test_contract_command_prints_the_last_run_or_says_there_was_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "ROOT", tmp_path)
    assert "run scripts/test first" in CliRunner().invoke(contract.main).output
    Run(tmp_path, '@proves("S0-01")\ndef test_it(): pass\n', "-q")
    printed = CliRunner().invoke(contract.main, ["--verbose"])
    assert printed.exit_code == 0 and "+ S0-01" in printed.output and "- D1" in printed.output
    (tmp_path / "build" / "contract.json").write_text(
        json.dumps({"at": "", "args": [], "problems": ["x"], "tests": []})
    )
    assert CliRunner().invoke(contract.main).exit_code == 1


@pytest.mark.parametrize("line", ["- **S0-01** Again.", "- **S0-1x** Odd.", "- **S0-05**"])
def test_malformed_contract_page_is_refused(tmp_path: Path, line: str) -> None:
    page = tmp_path / "contract.md"
    page.write_text(PAGE + line + "\n")
    with pytest.raises(ValueError, match="contract.md:12"):
        read_items(page)


def test_contract_page_has_every_item_once() -> None:
    ids = list(read_items(page_of(ROOT)))
    expected = [
        *(f"S0-{n:02}" for n in range(1, 44)),
        *(f"S0-B{n:02}" for n in (*range(1, 25), *range(30, 34), *range(40, 52))),
        *(f"S1-{n:02}" for n in (*range(1, 9), *range(10, 19), *range(20, 28), *range(30, 33), *range(40, 48))),
        *(f"S1-{n:02}" for n in (*range(50, 54), *range(60, 66), *range(70, 75), *range(80, 86), 90)),
        *(f"S1-B{n:02}" for n in range(1, 14)),
        *(f"S2-{n:02}" for n in range(1, 21)),
        *(f"S2-B{n:02}" for n in range(1, 24)),
        *(f"S3-{n:02}" for n in (*range(1, 24), *range(30, 36))),
        *(f"S3-B{n:02}" for n in range(1, 10)),
        *(f"S4-{n:02}" for n in range(1, 35)),
        *(f"S4-B{n:02}" for n in range(1, 18)),
        *(f"D{n}" for n in range(1, 18)),
        *(f"F-{n:02}" for n in range(1, 16)),
    ]
    assert sorted(ids) == sorted(expected)


def test_contract_page_lists_every_decision_with_existing_items() -> None:
    rows = [line.strip("| ").split(" | ") for line in page_of(ROOT).read_text().splitlines() if line.startswith("| C-")]
    assert [row[0] for row in rows] == [f"C-{number:02}" for number in range(1, 21)]
    shown = {item for _, _, items in rows for item in items.split()}
    assert shown <= set(read_items(page_of(ROOT)))
