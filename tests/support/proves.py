"""The `proves` marker: a test names the contract items it proves, and each run records which it proved."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.contract import page_of, proofs, read_items, report_of

AT_MOST = 3


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"proves(*ids): items of tests/contract.md, {AT_MOST} at the most")
    config.pluginmanager.register(Proofs(config), "errand-proofs")


class Proofs:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.known = set(read_items(page_of(config.rootpath)))
        self.forms: dict[str, set[str]] = {}  # a test -> its node ids, one per parameter
        self.claims: dict[str, list[str]] = {}
        self.problems: list[str] = []
        self.phases: dict[str, set[str]] = {}  # a node id -> the phases that passed
        self.not_passed: set[str] = set()
        self.report: dict[str, Any] = {"tests": []}

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        # before any deselection: a test proves nothing if only some of its parameters were chosen
        ids = [name for marker in item.iter_markers("proves") for name in marker.args]
        if not any(item.iter_markers("proves")):
            return
        test = re.sub(r"\[.*\]$", "", item.nodeid, flags=re.DOTALL)
        self.forms.setdefault(test, set()).add(item.nodeid)
        claims = self.claims.setdefault(test, [])
        claims += [name for name in ids if name not in claims]

    def pytest_collection_finish(self) -> None:
        for test, ids in self.claims.items():
            if unknown := [str(name) for name in ids if name not in self.known]:
                self.problems.append(f"{test}: unknown {', '.join(unknown)}")
            if not 1 <= len(ids) <= AT_MOST:
                self.problems.append(f"{test}: {len(ids)} items, allowed are 1 to {AT_MOST}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a test process has collected: the main process of a run collects nothing itself."""
        found = getattr(node, "workeroutput", {}).get("proofs")
        if found:  # every process collects all tests, so one list is enough
            self.forms = {test: set(forms) for test, forms in found["forms"].items()}
            self.claims, self.problems = found["claims"], found["problems"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "passed" and not hasattr(report, "wasxfail"):
            self.phases.setdefault(report.nodeid, set()).add(report.when or "")
        else:
            self.not_passed.add(report.nodeid)

    def _unproved_forms(self, test: str) -> list[str]:
        """The node ids of a test that did not run, or did not pass in every phase."""
        return sorted(
            form
            for form in self.forms[test]
            if form in self.not_passed or self.phases.get(form) != {"setup", "call", "teardown"}
        )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.problems and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.config.option.collectonly:
            return
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            forms = {test: sorted(forms) for test, forms in self.forms.items()}
            output["proofs"] = {"forms": forms, "claims": self.claims, "problems": self.problems}
            return
        path = report_of(self.config.rootpath)
        path.parent.mkdir(exist_ok=True)
        second = self.config.getoption("--second-try", False) and path.exists()
        self.report = self._amended(json.loads(path.read_text())) if second else self._first_report()
        path.write_text(json.dumps(self.report, indent=1))

    def _first_report(self) -> dict[str, Any]:
        unproved = {test: self._unproved_forms(test) for test in self.claims}
        return {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "args": list(self.config.invocation_params.args),
            "problems": self.problems,
            "tests": [
                {"test": test, "proves": ids, "passed": not unproved[test], "unproved": unproved[test]}
                for test, ids in self.claims.items()
            ],
        }

    def _amended(self, report: dict[str, Any]) -> dict[str, Any]:
        """The report of the first run, in which items that only the second try proved are marked."""
        for entry in report["tests"]:
            if entry["passed"] or entry["test"] not in self.forms:
                continue
            still = set(self._unproved_forms(entry["test"])) & set(entry["unproved"])
            entry["unproved"] = sorted(still)
            entry["passed"] = entry["second_try"] = not still
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._summary():
            terminalreporter.write_line(line)

    def _summary(self) -> Iterator[str]:
        for problem in self.problems:
            yield f"ERROR contract: {problem}"
        proved = proofs(self.report).keys() & self.known
        yield f"contract: {len(proved)} of {len(self.known)} items proved; see python -m tests.support.contract"
