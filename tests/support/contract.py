"""`python -m tests.support.contract`: the items of tests/contract.md that the last test run proved.

With --write it marks on each line of the page whether a test claims to prove it.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from settings import ROOT
from tests.support.layering import parsed

_GROUP = re.compile(r"^## (.+)$")
_ITEM = re.compile(r"^- \*\*([A-Z]\d?(?:-B?)?\d+)\*\* (\S.*?)(?: [✓✗])?$")


@dataclass(frozen=True)
class Item:
    id: str
    group: str
    text: str


def page_of(root: Path) -> Path:
    return root / "tests" / "contract.md"


def report_of(root: Path) -> Path:
    return root / "build" / "contract.json"


def read_items(page: Path) -> dict[str, Item]:
    """The items by id, in the order of the page. A malformed item or a repeated id is an error."""
    items: dict[str, Item] = {}
    group = ""
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if heading := _GROUP.match(line):
            group = heading[1]
        elif line.startswith("- **"):
            match = _ITEM.match(line)
            if match is None or match[1] in items:
                raise ValueError(f"{page.name}:{number}: not an item, or its id is used twice: {line}")
            items[match[1]] = Item(match[1], group, match[2])
    return items


def claimed(tests: Path) -> set[str]:
    """The ids that the tests of a folder name in their marks."""
    return {name for _, ids, is_test in _claims(tests) if is_test for name in ids}


def hidden_claims(tests: Path) -> list[str]:
    """Functions that have a `proves` mark although pytest does not collect them: helpers, methods, functions inside
    functions."""
    return [where for where, _, is_test in _claims(tests) if not is_test]


def _claims(tests: Path) -> Iterator[tuple[str, set[str], bool]]:
    """Each function with a mark, the ids that the mark names, and whether the function is a test of its module."""
    for file in sorted(tests.rglob("*.py")):
        module = parsed(tests, file)
        collected = {id(node) for node in module.tree.body} if file.name.startswith("test_") else set()
        for node in module.nodes:
            for mark in getattr(node, "decorator_list", ()):
                if ast.unparse(mark).partition("(")[0].rpartition(".")[2] == "proves":
                    name = str(getattr(node, "name", ""))
                    ids = {str(one.value) for one in getattr(mark, "args", ()) if isinstance(one, ast.Constant)}
                    is_test = id(node) in collected and name.startswith("test_")
                    yield f"{module.path}::{name}", ids, is_test


def with_marks(page: str, proved: set[str]) -> str:
    """The page with ✓ at the end of each item that a test proves, and ✗ at the others."""

    def marked(line: str) -> str:
        item = _ITEM.match(line)
        return f"- **{item[1]}** {item[2]} {'✓' if item[1] in proved else '✗'}" if item else line

    return "\n".join(map(marked, page.split("\n")))


def proofs(report: dict[str, Any]) -> dict[str, list[str]]:
    """The tests that prove each id: those that ran and passed with every parameter."""
    found: dict[str, list[str]] = {}
    for test in report["tests"]:
        for item in test["proves"] if test["passed"] else ():
            found.setdefault(item, []).append(test["test"])
    return found


def table(items: dict[str, Item], report: dict[str, Any]) -> str:
    proved = proofs(report)
    groups: dict[str, list[Item]] = {}
    for item in items.values():
        groups.setdefault(item.group, []).append(item)
    lines = [f"{'group':32}{'proved':>7}{'of':>5}   not proved"]
    for group, members in groups.items():
        missing = [item.id for item in members if item.id not in proved]
        lines.append(f"{group:32}{len(members) - len(missing):7}{len(members):5}   {' '.join(missing)}".rstrip())
    known = sum(item in items for item in proved)
    lines += [f"{'all':32}{known:7}{len(items):5}", ""]
    lines += [f"names an unknown or too many items: {problem}" for problem in report["problems"]]
    lines += [f"passed only in its second try: {test['test']}" for test in report["tests"] if test.get("second_try")]
    lines.append(f"From the run of {report['at']}: pytest {' '.join(report['args'])}".rstrip())
    lines.append(
        "A run of only some tests proves only what it ran; skipped, failed and uncollected tests prove nothing."
    )
    return "\n".join(lines)


@click.command()
@click.option("--write", is_flag=True, help="Mark each line of the page instead.")
def main(write: bool) -> None:
    """Print which items of the contract the last test run proved."""
    if write:
        page = page_of(ROOT)
        page.write_text(with_marks(page.read_text(), claimed(ROOT / "tests")))
        return
    path = report_of(ROOT)
    if not path.exists():
        raise click.ClickException("there is no report yet: run scripts/test first")
    report = json.loads(path.read_text())
    click.echo(table(read_items(page_of(ROOT)), report))
    if report["problems"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
