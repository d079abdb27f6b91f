"""Without chromium the tests of the console are skipped, and the end of the run explains how to enable them."""

import os
import subprocess
import sys

from settings import ROOT


def test_run_without_chromium_skips_the_console_and_says_so_at_its_end() -> None:
    tests = "tests/behaviour/console/test_operations.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(command, cwd=ROOT, env={**environment, "PATH": ""}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    said = run.stdout.splitlines()
    assert "1 skipped" in said[-1]
    [line] = [one for one in said if one.startswith("no chromium")]
    assert line == "no chromium: the console was not tested; `apt-get install chromium` adds it"
