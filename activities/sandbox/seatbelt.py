"""The macOS back end: sandbox-exec with a profile that denies everything but the workspace and the system's programs.

It was written from public descriptions and is used only if the probe passes. There is no process namespace: a command
that leaves its process group can outlive its call, still confined.
"""

import asyncio
import os
import shutil
import sys
from dataclasses import dataclass
from typing import Unpack

from activities.sandbox.bubblewrap import PATH, shell
from activities.sandbox.sandbox import NONE, CommandOptions, SandboxResult
from activities.sandbox.supervise import supervise

_PROFILE = """(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read* (literal "/") (subpath "/usr") (subpath "/bin") (subpath "/sbin") (subpath "/System")
  (subpath "/Library/Developer") (subpath "/opt/homebrew") (subpath "/private/var/db/dyld")
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom")
  (subpath (param "WORKSPACE")))
(allow file-write* (literal "/dev/null") (subpath (param "WORKSPACE")))
"""
_NO_NETWORK = (
    "Nothing was run: this worker's sandbox is seatbelt, which can open or close the network of this host but has no "
    "guarded way out. Run the task with the sandbox isolated, or on a Linux worker with user namespaces (bwrap)."
)


@dataclass(frozen=True)
class Seatbelt:
    program: str
    name: str = "seatbelt"

    async def run(self, command: str, **options: Unpack[CommandOptions]) -> SandboxResult:
        if options["network"] is not None:
            return SandboxResult(None, "", self.name, refusal=_NO_NETWORK)
        limits = options["limits"]
        # profiles match real paths: /private/tmp, not /tmp
        place = await asyncio.to_thread(os.path.realpath, options["workspace"])
        memory, blocks = limits.memory_bytes // 1024, limits.file_bytes // 512
        limited = f"ulimit -c 0; ulimit -t {limits.cpu_s}; ulimit -f {blocks}; ulimit -n {limits.open_files}; "
        limited += f'ulimit -v {memory} 2>/dev/null; cd "$1" && exec "$2" -c "$3"'
        return await supervise(
            [self.program, "-D", f"WORKSPACE={place}", "-p", _PROFILE]
            + ["/usr/bin/env", "-i", f"PATH={PATH}", f"HOME={place}", f"TMPDIR={place}", "LANG=en_US.UTF-8"]
            + ["PYTHONDONTWRITEBYTECODE=1"]  # see bubblewrap.py
            # other processes of this host can see these; a setup that must not show its secrets belongs on Linux
            + [f"{name}={value}" for name, value in options.get("variables", NONE).items()]
            + [shell(), "-c", limited, "sandbox", place, shell(), command],
            options,
            self.name,
        )


def candidates() -> list[Seatbelt]:
    program = shutil.which("sandbox-exec", path="/usr/bin") if sys.platform == "darwin" else None
    return [Seatbelt(program)] if program else []
