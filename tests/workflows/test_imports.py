"""The modules of the workflows import each other one way only.

In a circle the workflow sandbox would hand out the module from outside of it: a second copy, whose exceptions nobody
inside catches, so that an inline delegate's failure wedges its session.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from settings import ROOT


def imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "workflows":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("workflows."):
            found.add((node.module or "").split(".")[1])
    return found


def test_no_module_of_the_workflows_imports_itself_through_others() -> None:
    graph = {file.stem: imported(file) for file in (ROOT / "workflows").glob("*.py")}
    assert "steps" in graph["loop"]
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)  # a circle raises
