"""No text says "1 steps": texts with numbers use `domain.amounts.counted`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from domain.amounts import counted
from settings import ROOT

PACKAGES = ("activities", "agents", "api", "cli", "client", "domain", "offline", "store", "workflows")
NOUNS = (
    *("agent", "approval", "attempt", "call", "change", "conversation", "event", "file", "folder", "hour", "item"),
    *("key", "line", "mark", "message", "minute", "outcome", "question", "run", "schedule", "session", "step"),
    *("subagent", "task", "time", "turn", "version"),
)
LIMITS = (" of ", "more than ", "beyond ")
PLURAL = re.compile(rf"^ (?:(?!(?:of|in|to|and|at|for)\b)[a-z]+ ){{0,2}}(?:{'|'.join(NOUNS)})s\b")


def test_counted() -> None:
    assert (counted(0, "step"), counted(1, "step"), counted(1_200, "tool call")) == (
        *("0 steps", "1 step", "1,200 tool calls"),
    )


def test_every_number_of_things_is_counted() -> None:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    found = [one for file in files for one in _uncounted(file)]
    assert not found, "\n".join(found)


def _uncounted(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for value, text in zip(node.values, [*node.values[1:], None], strict=True):
            if isinstance(value, ast.Constant):
                before = str(value.value)
            elif isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant):
                match = PLURAL.match(str(text.value))
                if match and not before.endswith(LIMITS) and not _no_count(value):
                    yield f"{file.relative_to(ROOT)}:{value.lineno}: {{{ast.unparse(value.value)}}}{match[0]}"


def _no_count(value: ast.FormattedValue) -> bool:
    """A constant, a limit of the settings, a name, or a number with decimals."""
    names = [part.id if isinstance(part, ast.Name) else part.attr for part in ast.walk(value.value) if _named(part)]
    spec = ast.unparse(value.format_spec) if value.format_spec else ""
    return "settings" in names or names[0] in ("name", "role") or "." in spec or names[0].isupper()


def _named(part: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    return isinstance(part, ast.Name | ast.Attribute)
