"""Runs the command `errand` on a stack, in this process: a new one would need a third of a second for its imports.

Not for `chat`, which takes signals, and not for `replay` and `export`, which end their process."""

import asyncio
import threading
from pathlib import Path

from click.testing import CliRunner, Result

from cli.main import errand
from tests.support.stack import Stack

ONE_AT_A_TIME = threading.Lock()  # the runner replaces the environment and the output of the whole process


async def cli(stack: Stack, *args: str, input: str | None = None, state: Path | None = None, **env: str) -> Result:
    """What a script sees of the command. `state` is the folder in which it remembers the last task."""
    own = {"ERRAND_URL": stack.url, "ERRAND_API_KEY": "", "ERRAND_DATA_DIR": str(stack.root), "NO_COLOR": "1"}
    own["XDG_STATE_HOME"] = str(state or stack.root / "state")

    def run() -> Result:
        with ONE_AT_A_TIME:
            return CliRunner().invoke(errand, list(args), input=input, env=own | env, prog_name="./errand")

    return await asyncio.to_thread(run)
