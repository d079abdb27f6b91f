"""The docs name tests, diagrams, hosts, models and reasons that exist."""

import ast
import re
from pathlib import Path

import pytest

from activities.handlers.registry import HANDLERS
from activities.tools.registry import TOOLS
from agents.loader import check_agents
from agents.problems import Catalogue
from cli.commands.agents import mermaid
from domain.sessions.session import Reason
from offline.faults import CONDITIONS, STREAM_KINDS
from offline.scripts import SCRIPTS
from settings import ROOT
from tests.support import layering

PACKAGES = [folder / "__init__.py" for folder in map(ROOT.joinpath, layering.PACKAGES)]
PACKAGES = [file for top in PACKAGES for file in sorted(top.parent.rglob("__init__.py"))]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.parent.relative_to(ROOT).as_posix())
def test_every_package_opens_with_the_order_in_which_to_read_it(package: Path) -> None:
    """The files that its docstring names exist, in it or in a folder above."""
    text = ast.get_docstring(ast.parse(package.read_text())) or ""
    named = re.findall(r"[\w/]+\.py\b", text)
    assert [name for name in named if not any((folder / name).exists() for folder in package.parents)] == []
    assert len(text.split()) > 15, "what is in it, in which order to read it, what may import it"


PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_test_that_is_named_exists() -> None:
    def defines(file: str, test: str) -> bool:
        return re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text(), re.MULTILINE) is not None

    assert [f"{file}::{test}" for file, test in NAMED if not defines(file, test)] == []


def test_every_promise_has_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("| promise", "|---"))]
    assert len(rows) > 20
    for row in rows:
        assert re.fullmatch(r"\| [^|]+ \| (`tests/[\w/]+\.py::\w+`(, )?)+ \|", row), row


def test_every_diagram_in_the_docs_is_generated() -> None:
    agents = check_agents(ROOT / "agents", Catalogue(TOOLS, HANDLERS)).agents
    generated = {mermaid(agents, name) for name in agents}
    shown = re.findall(r"^```mermaid\n(.*?)^```$", (ROOT / "docs/graphs.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(shown) == 3
    assert [diagram for diagram in shown if diagram not in generated] == []


AGENTS = {path.stem for path in (ROOT / "agents").glob("*.md")}


def rows(heading: str) -> set[str]:
    section = (ROOT / "docs" / "agents.md").read_text().split(f"\n### {heading}\n")[1].split("\n##")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_page_names_every_script_and_fault() -> None:
    assert rows("Scripts") == set(SCRIPTS) - AGENTS  # the demos of the sample agents have no marker
    assert rows("Faults") >= {*STREAM_KINDS, *CONDITIONS, "auth", "429", "500", "529"}


_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| [^|]+ \| (?:`([\w/.]+)::(\w+)` )?\|$", re.MULTILINE)


def test_every_reason_is_documented_with_the_test_that_reaches_it() -> None:
    rows = _ROW.findall((ROOT / "docs" / "limits.md").read_text().split("## Every end")[1])
    assert {name: status for name, status, _, _ in rows} == {reason: reason.status for reason in Reason}
    assert [name for name, _, file, _ in rows if not file] == []
    for _, _, file, test in rows:
        if file:
            assert f"def {test}(" in (ROOT / file).read_text(), test
