"""Only a tool's own module contains its name; other code uses the tool's traits."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from activities.tools.registry import TOOLS
from settings import ROOT

NAMES = {*TOOLS} - {"bash", "task"}  # these two are also words for a shell and for what people submit
PRODUCT = ("activities", "agents", "api", "cli", "connectors", "deploy", "domain", "store", "workflows")
THEIR_OWN = (
    "activities/tools/builtin/",
    "domain/agents/own_tools.py",  # a test compares these names with the traits
    "domain/conversations/delegation.py",  # the enum that defines the names of these tools
)
FILES = [
    *ROOT.glob("*.py"),
    *(file for folder in PRODUCT for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".sql")),
]


def texts(file: Path) -> Iterator[str]:
    """All string literals of a file."""
    if file.suffix == ".sql":
        yield from re.findall(r"'(\w+)'", file.read_text())
    else:
        tree = ast.walk(ast.parse(file.read_text()))
        yield from (node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_no_name_of_a_tool_is_a_literal_outside_its_tool() -> None:
    places = [(file, file.relative_to(ROOT).as_posix()) for file in FILES]
    others = [(file, path) for file, path in places if not path.startswith(THEIR_OWN)]
    assert len(others) > 300
    assert [(path, text) for file, path in others for text in texts(file) if text in NAMES] == []


@pytest.mark.parametrize(
    ("name", "text"), [("a.py", "if call.name == 'ask_user':\n    pass\n"), ("a.sql", "IF n.tool = 'ask_user' THEN")]
)
def test_a_literal_is_found(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert NAMES & {*texts(tmp_path / name)} == {"ask_user"}
