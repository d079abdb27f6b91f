"""The protocol's library is large, so neither the API nor a command imports it at its start."""

import subprocess
import sys

from settings import ROOT

PROGRAM = """
import sys, cli.commands.mcp, api.app
print([name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types")])
"""


def test_library_is_not_loaded_at_the_start() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
