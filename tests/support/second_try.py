"""A second try for failed tests: once, on a fresh stack, and always reported.

`pytest --second-try` runs what failed in the run before. Tests of crashes, faults and exactly-once get no second try:
one failure in a hundred runs is the defect that they look for. Which tests these are follows from their code (it ends
or freezes a process), from their names and from the items that they prove; where none of it shows, because a helper or
a fixture kills, a test or its module has the mark `exactly_once`. What needed a second try is printed at the end.
"""

import inspect
import json
import re
from pathlib import Path

import pytest

from tests.support.contract import page_of, read_items

FAULTS = "tests/faults/"
KILLS = re.compile(r"SIGKILL|SIGSTOP|\bkill\(|\bfrozen(_supervisor)?\(")  # ends or freezes a process
# words about crashes and exactly-once effects, in the name of a test or the line of an item that it proves
_SAYS_SO = re.compile(
    r"(?:^|_|\b)(?:cras\w+|died|dies|exactly|kill\w*|los[et]\w*|never|(?<!at[ _])once|restarts?|second time|twice)"
    r"(?=_|\b)",
    re.IGNORECASE,
)


def report_of(root: Path) -> Path:
    return root / "build" / "failed.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--second-try", action="store_true", help="Run the tests that failed in the run before once more.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "exactly_once: a test that counts effects and therefore gets no second try")
    config.pluginmanager.register(SecondTry(config), "errand-second-try")


class SecondTry:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.active = bool(config.getoption("--second-try"))
        self.failed: set[str] = set()  # tests that failed in this run
        self.before: set[str] = set()  # tests that failed in the run before
        self.tried: set[str] = set()
        if self.active and report_of(config.rootpath).exists():
            self.before = set(json.loads(report_of(config.rootpath).read_text()))

    @property
    def refused(self) -> list[str]:
        """Failures of the run before that get no second try, or whose tests no longer exist."""
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
    if FAULTS in f"/{item.nodeid}" or item.get_closest_marker("exactly_once") is not None:
        return False
    items = read_items(page_of(item.config.rootpath))
    proved = [items[name].text for marker in item.iter_markers("proves") for name in marker.args if name in items]
    if any(map(says_so, (item.name.partition("[")[0], *proved))):
        return False
    return not (isinstance(item, pytest.Function) and KILLS.search(inspect.getsource(inspect.unwrap(item.function))))


def says_so(text: str) -> bool:
    return _SAYS_SO.search(text) is not None
