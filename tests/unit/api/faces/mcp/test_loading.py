"""The protocol's library is large, so neither the API nor a command imports it at its start."""

import subprocess
import sys

import pytest

from settings import ROOT


@pytest.mark.parametrize("module", ["api.app", "cli.commands.mcp"])
def test_library_is_not_loaded_at_the_start(module: str) -> None:
    program = (
        f"import sys, {module}; print([name for name in sys.modules if name.split('.')[0] in ('mcp', 'mcp_types')])"
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
