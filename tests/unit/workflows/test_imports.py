"""What the modules of the workflows may import: each other one way only, and nothing that is not deterministic.

If imports form a cycle, the sandbox of replays returns the module from outside the sandbox: a second copy, whose
exceptions no code inside catches.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from settings import ROOT
from workflows.registry import WORKFLOWS
from workflows.replay import PURE

FOLDER = ROOT / "workflows"


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(FOLDER).with_suffix("").parts).removesuffix(".__init__")


def path_of(name: str) -> Path:
    return FOLDER.joinpath(*name.split(".")).with_suffix(".py")


MODULES = {name_of(file) for file in FOLDER.rglob("*.py")}


def imported(file: Path) -> set[str]:
    """The modules of the workflows package that a file imports, without the package's name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "workflows":
            package = (node.module or "").removeprefix("workflows").removeprefix(".")
            for alias in node.names:
                inner = f"{package}.{alias.name}".removeprefix(".")
                found.add(inner if inner in MODULES else package)
    return found


def test_no_module_of_the_workflows_imports_itself_through_others() -> None:
    graph = {name_of(file): imported(file) for file in FOLDER.rglob("*.py")}
    assert "activity_calls" in graph["session.loop"]
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)  # raises if there is a cycle


def used_by_workflows() -> set[str]:
    """The modules that define a workflow, and all that they import."""
    todo = {workflow.__module__.removeprefix("workflows.") for workflow in WORKFLOWS}
    found: set[str] = set()
    while todo:
        found.add(name := todo.pop())
        todo |= imported(path_of(name)) - found
    return found


KNOWN = {
    *(
        "asyncio",
        "collections",
        "collections.abc",
        "contextlib",
        "dataclasses",
        "datetime",
        "itertools",
        "re",
        "typing",
        "urllib.parse",
    ),
    *("pydantic", "temporalio"),
}
CLOCKS = {"now", "utcnow", "today", "time", "monotonic"}


def impurities(source: str) -> list[str]:
    """Modules that a workflow must not import: any that could read the clock, use randomness or do I/O."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name not in KNOWN and name.split(".")[0] not in ("domain", "workflows", "temporalio"):
                found.append(name)
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS and ast.unparse(node.value) != "workflow":
            found.append(ast.unparse(node))
        if isinstance(node, ast.Name) and node.id in ("open", "print", "input", "id", "hash"):
            found.append(node.id)
    return found


@pytest.mark.parametrize("name", sorted(used_by_workflows()))
def test_modules_used_by_workflows_are_deterministic(name: str) -> None:
    """A worker runs workflows without the SDK's sandbox, so nothing else refuses these calls before a replay."""
    assert impurities(path_of(name).read_text()) == []


def test_all_but_the_workflows_themselves_pass_through() -> None:
    """A module with one copy inside the sandbox and one outside would have two classes for each exception."""
    inside = {workflow.__module__.removeprefix("workflows.") for workflow in WORKFLOWS}
    assert used_by_workflows() - inside == set(PURE)
