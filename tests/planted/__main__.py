"""`python -m tests.planted [--together] [TEXT...]`: plants bugs in a copy of the tree, one at a time, runs the tests
that should notice and prints how many bugs were caught.

With texts: only bugs whose name, file or tests contain one of them. With --together several bugs that share neither
file nor tests are planted at once, which is faster; a bug then counts as caught if one of its own tests fails.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from settings import ROOT
from tests.planted import reliability, security
from tests.planted.bug import Bug

BUGS = [*security.BUGS, *reliability.BUGS]
AT_ONCE = 6
PATIENCE, HANGS_AFTER = 1_800.0, 120.0  # seconds for one run of tests
LEFT_OUT = (".git", ".venv*", ".errand", "__pycache__", ".mypy_cache", ".ruff_cache", ".dmypy.json")


def caught(tree: Path, bugs: list[Bug]) -> dict[Bug, str]:
    """The bugs that their tests notice, each with a line about it. The tree is as before afterwards."""
    before = {bug.file: (tree / bug.file).read_text() for bug in bugs}
    for bug in bugs:
        assert before[bug.file].count(bug.old) == 1, f"{bug.file} has {bug.old!r} not once"
        (tree / bug.file).write_text(before[bug.file].replace(bug.old, bug.new))
    tests = sorted({test for bug in bugs for test in bug.tests})
    options = ["-q", "-rfE", "-p", "no:cacheprovider", "--no-header", "--tb=no", *(["-x"] if len(bugs) == 1 else [])]
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    seconds = HANGS_AFTER if bugs[0].hangs else PATIENCE
    try:
        run = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=seconds)
        output = run.stdout.splitlines()
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode().splitlines()
        if bugs[0].hangs:
            return {bugs[0]: "its tests did not end"}
    finally:
        for file, text in before.items():
            (tree / file).write_text(text)
    failed = [line for line in output if line.startswith(("FAILED", "ERROR"))]
    found = {bug: next((line for line in failed if any(test in line for test in bug.tests)), "") for bug in bugs}
    return {bug: line for bug, line in found.items() if line}


def batches(bugs: list[Bug], most: int) -> Iterator[list[Bug]]:
    """Bugs of one batch share neither a file nor a file of tests."""
    left = list(bugs)
    while left:
        batch: list[Bug] = []
        used: set[str] = set()
        for bug in left:
            parts = {bug.file, *(test.partition("::")[0] for test in bug.tests)}
            if len(batch) < most and not parts & used and not (batch and (bug.hangs or batch[0].hangs)):
                batch.append(bug)
                used |= parts
        left = [bug for bug in left if bug not in batch]
        yield batch


@click.command()
@click.option("--together", is_flag=True, help="Plant several bugs at once.")
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
def main(together: bool, texts: tuple[str, ...]) -> None:
    chosen = [bug for bug in BUGS if not texts or any(text in f"{bug.name} {bug.file} {bug.tests}" for text in texts)]
    total = 0
    with tempfile.TemporaryDirectory(prefix="errand-planted-") as folder:
        tree = Path(folder, "tree")
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        for batch in batches(chosen, AT_ONCE if together else 1):
            began = time.monotonic()
            found = caught(tree, batch)
            total += len(found)
            for bug in batch:
                click.echo(f"{'caught' if bug in found else 'MISSED'}  {bug.name}: {found.get(bug, '')[:150]}")
            click.echo(f"        {time.monotonic() - began:.0f} s")
    click.echo(f"{total} of {len(chosen)} caught: {100 * total / max(1, len(chosen)):.0f} %")
    sys.exit(total < len(chosen))


if __name__ == "__main__":
    main()
