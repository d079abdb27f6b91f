"""A second try for tests that failed: once, on a fresh stack, and never in secret.

`pytest --second-try` runs what failed in the run before. Tests of crashes, faults and exactly-once get no second try:
one failure in a hundred runs is the defect that they look for. What needed a second try is printed at the end.
"""

import json
from pathlib import Path

import pytest

# whole files: any test in them kills something, or counts effects
NEVER = (
    "tests/faults/",
    "/test_crashes.py",
    "/test_effects.py",
    "/test_everything_killed.py",
    "/test_lock_order.py",
    "/test_machine.py",
    "/test_tool_calls.py",
)
# elsewhere: tests that prove one of these items of docs/contract.md
EXACTLY_ONCE = frozenset(
    (
        *("D4", "D5", "D6", "D12", "D13", "D14", "F-05", "F-06", "F-09", "F-11", "F-14"),
        *("S0-27", "S0-B22", "S0-B42", "S0-B46", "S0-B50", "S1-05", "S1-21", "S2-11", "S3-B07"),
    )
)


def report_of(root: Path) -> Path:
    return root / "build" / "failed.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-try", action="store_true", help="Run the tests that failed in the run before once more.")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SecondTry(config), "errand-second-try")


class SecondTry:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.active = bool(config.getoption("--second-try"))
        self.failed: set[str] = set()  # in this run
        self.before: set[str] = set()  # in the run before
        self.tried: set[str] = set()
        if self.active and report_of(config.rootpath).exists():
            self.before = set(json.loads(report_of(config.rootpath).read_text()))

    @property
    def refused(self) -> list[str]:
        """Failures of the run before that get no second try, or whose tests are gone."""
        return sorted(self.before - self.tried)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if not self.active:
            return
        again = [item for item in items if item.nodeid in self.before and may_try_again(item)]
        self.tried = {item.nodeid for item in again}
        self.config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in self.tried])
        items[:] = again

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.config.option.collectonly or hasattr(self.config, "workeroutput"):
            return
        if self.active and (self.refused or not self.before):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        path = report_of(self.config.rootpath)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(sorted(self.failed | set(self.refused)), indent=1))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.active:
            return
        for nodeid in sorted(self.tried - self.failed):
            terminalreporter.write_line(f"FLAKY {nodeid}: passed only in its second try")
        for nodeid in self.refused:
            terminalreporter.write_line(f"FAILED {nodeid}: gets no second try")
        if not self.before:
            terminalreporter.write_line("ERROR second try: the run before names no failed test")


def may_try_again(item: pytest.Item) -> bool:
    proved = {name for marker in item.iter_markers("proves") for name in marker.args}
    path = f"/{item.nodeid.partition('::')[0]}"
    return not proved & EXACTLY_ONCE and not any(never in path for never in NEVER)
