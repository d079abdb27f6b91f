"""The sandlock back end, for hosts that forbid namespaces. It uses Landlock and seccomp, never in a degraded mode.

There is no network namespace, so a command never has a network here. `stat` still reveals which files exist, and a
worker that is root must keep its workspaces where other users can reach them.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Unpack

from activities.sandbox.bubblewrap import PATH, shell
from activities.sandbox.sandbox import NONE, CommandOptions, SandboxResult
from activities.sandbox.supervise import memory_file, supervise, user_for

_NO_NETWORK = (
    "Nothing was run: this worker's sandbox is sandlock, which has no network namespace and so no guarded way out. "
    "Run the task with the sandbox isolated, or on a worker with user namespaces (bwrap)."
)
_CHILD = Path(__file__).with_name("landlock_child.py")


@dataclass(frozen=True)
class Landlock:
    name: str = "sandlock"

    async def run(self, command: str, **options: Unpack[CommandOptions]) -> SandboxResult:
        if options["network"] is not None:
            return SandboxResult(None, "", self.name, refusal=_NO_NETWORK)
        uid = await user_for(options["workspace"])
        file = memory_file(_plan(command, options, uid))
        return await supervise(
            [sys.executable, "-I", str(_CHILD), str(file)],
            options,
            self.name,
            pass_fds=[file],
            stop_signal=signal.SIGTERM,  # its handler ends the whole tree
            uid=uid,
        )


def _plan(command: str, options: CommandOptions, uid: int | None) -> bytes:
    plan = asdict(options["limits"]) | {
        "command": command,
        "shell": shell(),
        "workspace": os.path.abspath(options["workspace"]),
        "uid": uid,
        "path": PATH,
        "talks": options.get("pipes") is not None,
        "variables": dict(options.get("variables", NONE)),
    }
    return json.dumps(plan).encode()


def candidates() -> list[Landlock]:
    return [Landlock()] if sys.platform == "linux" and find_spec("sandlock") else []
