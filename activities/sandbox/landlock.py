"""The sandlock back end, for hosts that forbid namespaces. It uses Landlock and seccomp, never in a degraded mode.

There is no network namespace, so a command never has a network here. `stat` still reveals which files exist, and a
worker that is root must keep its workspaces where other users can reach them.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from activities.sandbox.bubblewrap import PATH, shell
from activities.sandbox.network import NetworkPolicy
from activities.sandbox.sandbox import NONE, Pipes, SandboxLimits, SandboxResult
from activities.sandbox.supervise import memory_file, supervise, user_for

_NO_NETWORK = (
    "Nothing was run: this worker's sandbox is sandlock, which has no network namespace and so no guarded way out. "
    "Run the task with the sandbox isolated, or on a worker with user namespaces (bwrap)."
)
_CHILD = Path(__file__).with_name("landlock_child.py")


@dataclass(frozen=True)
class Landlock:
    name: str = "sandlock"

    async def run(
        self,
        command: str,
        *,
        workspace: Path,
        network: NetworkPolicy | None,
        timeout_s: float,
        limits: SandboxLimits,
        pipes: Pipes | None = None,
        variables: Mapping[str, str] = NONE,
    ) -> SandboxResult:
        if network is not None:
            return SandboxResult(None, "", self.name, refusal=_NO_NETWORK)
        uid = await user_for(workspace)
        plan = memory_file(_plan(command, workspace, uid, limits, talks=pipes is not None, variables=variables))
        ended = await supervise(
            [sys.executable, "-I", str(_CHILD), str(plan)],
            timeout_s=timeout_s,
            limits=limits,
            workspace=workspace,
            pipes=pipes,
            pass_fds=[plan],
            stop_signal=signal.SIGTERM,  # its handler ends the whole tree
            uid=uid,
        )
        return SandboxResult(
            ended.exit_code, ended.output, self.name, ended.timed_out, ended.truncated, stopped=ended.stopped
        )


def _plan(
    command: str,
    workspace: Path,
    uid: int | None,
    limits: SandboxLimits,
    *,
    talks: bool,
    variables: Mapping[str, str],
) -> bytes:
    plan = asdict(limits) | {
        "command": command,
        "shell": shell(),
        "workspace": os.path.abspath(workspace),
        "uid": uid,
        "path": PATH,
        "talks": talks,
        "variables": dict(variables),
    }
    return json.dumps(plan).encode()


def candidates() -> list[Landlock]:
    return [Landlock()] if sys.platform == "linux" and find_spec("sandlock") else []
