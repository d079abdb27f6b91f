"""The sandlock back end, for hosts that forbid namespaces: Landlock and seccomp, never in a degraded mode.

Limits of memory and processes hold for the whole tree. `stat` still shows that files exist, scratch space has no quota,
and a worker that is root must keep its workspaces where other users can reach them.
"""

import json
import os
import signal
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from activities.sandbox.bubblewrap import PATH, shell
from activities.sandbox.ownership import user_for
from activities.sandbox.sandbox import SandboxLimits, SandboxResult
from activities.sandbox.supervise import memory_file, supervise

_CHILD = Path(__file__).with_name("landlock_child.py")


@dataclass(frozen=True)
class Landlock:
    name: str = "sandlock"

    async def run(
        self, command: str, *, workspace: Path, network: bool, timeout_s: float, limits: SandboxLimits
    ) -> SandboxResult:
        uid = await user_for(workspace)
        plan = memory_file(_plan(command, workspace, network, uid, limits))
        ended = await supervise(
            [sys.executable, "-I", str(_CHILD), str(plan)],
            timeout_s=timeout_s,
            limits=limits,
            pass_fds=[plan],
            stop_signal=signal.SIGTERM,  # its handler ends the whole tree
        )
        return SandboxResult(ended.exit_code, ended.output, self.name, ended.timed_out, ended.truncated)


def _plan(command: str, workspace: Path, network: bool, uid: int | None, limits: SandboxLimits) -> bytes:
    plan = asdict(limits) | {
        "command": command,
        "shell": shell(),
        "workspace": os.path.abspath(workspace),
        "network": network,
        "uid": uid,
        "path": PATH,
    }
    return json.dumps(plan).encode()


def candidates() -> list[Landlock]:
    return [Landlock()] if sys.platform == "linux" and find_spec("sandlock") else []
