"""`python -m tests.planted [--log FILE] [TEXT...]`: plants bugs in a copy of the tree, one at a time, runs the tests
that should notice and prints how many bugs were caught.

A bug is caught if one of its tests fails with it and passes without it: at the end each test that failed runs once
more in the unchanged tree, so that a slow machine catches nothing. With a log a run that was broken off is continued.
With texts: only bugs of a topic of that name (security, reliability, graphs, operations, rules), or whose name, file or
tests contain one of them.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import pytest

from settings import ROOT
from tests.planted import graphs, operations, reliability, rules, security, subagents
from tests.planted.bug import Bug

TOPICS = {
    "security": security.BUGS,
    "reliability": reliability.BUGS,
    "graphs": [*graphs.BUGS, *subagents.BUGS],
    "operations": operations.BUGS,
    "rules": rules.BUGS,
}
BUGS = [bug for bugs in TOPICS.values() for bug in bugs]
PATIENCE, HANGS_AFTER = 1_200.0, 120.0  # seconds for one run of tests
LEFT_OUT = (".git", ".venv*", ".errand", "__pycache__", ".mypy_cache", ".ruff_cache", ".dmypy.json")


@dataclass(frozen=True)
class Verdict:
    """The result of the tests of one bug."""

    bug: str
    failed: list[str]  # names of the failed tests; empty if none noticed the bug
    line: str = ""
    seconds: int = 0


def run(tree: Path, tests: Iterable[str], *options: str, seconds: float = PATIENCE) -> list[str] | None:
    """The lines about failed tests; None if the tests did not end in time or could not be run."""
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "250"}
    flags = ["-q", "-rfE", "-p", "no:cacheprovider", "--no-header", "--tb=no", *options]
    command = [sys.executable, "-m", "pytest", *flags, *tests]
    try:
        ended = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    if ended.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return None
    return [line for line in ended.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]


def node_of(line: str) -> str:
    return line.partition(" ")[2].partition(" - ")[0]


@contextmanager
def planted(tree: Path, bug: Bug) -> Iterator[None]:
    before = (tree / bug.file).read_text()
    assert before.count(bug.old) == 1, f"{bug.file} has {bug.old!r} not once"
    (tree / bug.file).write_text(before.replace(bug.old, bug.new))
    try:
        yield
    finally:
        (tree / bug.file).write_text(before)


def judge(tree: Path, bug: Bug) -> Verdict:
    began = time.monotonic()
    with planted(tree, bug):
        lines = run(tree, bug.tests, "-x", seconds=HANGS_AFTER if bug.hangs else PATIENCE)
    took = round(time.monotonic() - began)
    if lines is None:
        return Verdict(bug.name, list(bug.tests) if bug.hangs else [], f"no end within {took} s", took)
    return Verdict(bug.name, [node_of(line) for line in lines], "; ".join(lines), took)


def passing(tree: Path, tests: set[str]) -> set[str]:
    """The tests among these that pass in the unchanged tree."""
    if not tests:
        return set()
    lines = run(tree, sorted(tests))
    failed = {node_of(line) for line in lines or []}
    return {test for test in tests if lines is not None and not any(name.startswith(test) for name in failed)}


def chosen_by(texts: tuple[str, ...]) -> list[Bug]:
    """The bugs that the texts choose, or all without texts; the name of a topic chooses only the bugs of that topic."""
    named = {bug.name for text in texts for bug in TOPICS.get(text, ())}
    free = [text for text in texts if text not in TOPICS]
    return [
        bug
        for bug in BUGS
        if not texts or bug.name in named or any(text in f"{bug.name} {bug.file} {bug.tests}" for text in free)
    ]


@click.command(help=__doc__)
@click.option("--log", type=click.Path(path_type=Path), help="Verdicts, one JSON object per line; those in it stay.")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
def main(log: Path | None, texts: tuple[str, ...]) -> None:
    if not (chosen := chosen_by(texts)):
        raise click.UsageError(f"No bug has any of these texts. Topics: {', '.join(TOPICS)}.")
    known = [Verdict(**json.loads(line)) for line in log.read_text().splitlines()] if log and log.exists() else []
    verdicts = {verdict.bug: verdict for verdict in known}
    with tempfile.TemporaryDirectory(prefix="errand-planted-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        for bug in chosen:
            if bug.name in verdicts:
                continue
            verdict = verdicts[bug.name] = judge(tree, bug)
            click.echo(
                f"{'noticed' if verdict.failed else 'MISSED '}  {bug.name} ({verdict.seconds} s): {verdict.line[:150]}"
            )
            if log:
                with log.open("a") as file:
                    file.write(json.dumps(asdict(verdict)) + "\n")
        sound = passing(tree, {test for bug in chosen for test in verdicts[bug.name].failed})
    caught = [bug for bug in chosen if sound & set(verdicts[bug.name].failed)]
    for bug in chosen:
        if bug not in caught:
            why = "its tests fail without it too" if verdicts[bug.name].failed else verdicts[bug.name].line
            click.echo(f"not caught: {bug.name} {why}")
    click.echo(f"{len(caught)} of {len(chosen)} caught: {100 * len(caught) / max(1, len(chosen)):.0f} %")
    sys.exit(len(caught) < len(chosen))


if __name__ == "__main__":
    main()
