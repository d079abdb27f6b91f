"""Runs one command under sandlock and ends every process that it left. A separate script, because sandlock forks.

It is the reaper of all orphans below it, so that no process of the command can escape.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from types import FrameType
from typing import Any, TypedDict

from sandlock import Sandbox, StdioMode  # type: ignore[import-untyped]

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_READABLE: tuple[str, ...] = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
)
_READABLE += ("/dev/random", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/proc/self")

_exit_code: list[int] = []


class _Stopped(Exception):
    """The worker wants the command to stop."""


class ChildPlan(TypedDict):
    """The request that the worker writes to the file whose descriptor is the only argument."""

    command: str
    shell: str
    workspace: str
    uid: int | None  # also the group
    path: str
    talks: bool  # its standard input is the worker's
    variables: dict[str, str]
    readable: list[str]
    cpu_s: int
    file_bytes: int
    memory_bytes: int
    processes: int
    open_files: int


def main() -> None:
    with open(int(sys.argv[1]), "rb") as given:
        plan: ChildPlan = json.load(given)
    libc = ctypes.CDLL(None, use_errno=True)
    if plan["uid"] is not None:
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # lost with the change of user, and sandlock's supervisor needs it
    for which, value in ((resource.RLIMIT_CPU, plan["cpu_s"]), (resource.RLIMIT_FSIZE, plan["file_bytes"])):
        resource.setrlimit(which, (value, value))
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _stop)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="errand-", ignore_cleanup_errors=True) as scratch:
        # In a thread: while the main thread waits inside sandlock, it would not notice a signal.
        command = threading.Thread(target=_run, args=(plan, scratch), daemon=True)
        command.start()
        try:
            command.join()
        except _Stopped:
            _exit_code.append(137)
        _end_descendants()
    os._exit(_exit_code[0] if _exit_code else 125)


def _run(plan: ChildPlan, scratch: str) -> None:
    stdin = StdioMode.INHERIT if plan["talks"] else StdioMode.NULL
    result = _start(_sandbox(plan, scratch), [plan["shell"], "-c", plan["command"]], stdin).wait()
    signalled = 128 + (result.signal if result.signal > 0 else signal.SIGKILL)
    _exit_code.append(result.exit_code if result.exit_code >= 0 else signalled)


def _start(sandbox: Sandbox, argv: list[str], stdin: StdioMode) -> Any:
    """Under load sandlock sometimes starts nothing, and works a moment later."""
    for pause in (0.2, 1.0):
        try:
            return sandbox.popen(argv, stdin=stdin)
        except RuntimeError:
            time.sleep(pause)
    return sandbox.popen(argv, stdin=stdin)


def _sandbox(plan: ChildPlan, scratch: str) -> Sandbox:
    return Sandbox(
        fs_readable=[path for path in (*_READABLE, *plan["readable"]) if os.path.exists(path)],
        fs_writable=[plan["workspace"], scratch, "/dev/null"],
        net_allow=[],
        cwd=plan["workspace"],
        clean_env=True,
        env={
            "PATH": plan["path"],
            "HOME": scratch,
            "TMPDIR": scratch,
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PYTHONDONTWRITEBYTECODE": "1",  # see bubblewrap.py
            "GIT_CONFIG_NOSYSTEM": "1",  # git fails on a configuration that exists but cannot be read
            **plan["variables"],
        },
        max_memory=plan["memory_bytes"],
        max_processes=plan["processes"],
        max_open_files=plan["open_files"],
        no_coredump=True,
    )


def _stop(signum: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Stopped


def _end_descendants() -> None:
    """Kill and reap until none is left: orphans become our children, so each round may reveal more."""
    while children := _children():
        for pid in children:
            # sandlock may have reaped it already
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _children() -> list[int]:
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as children:
                found += [int(pid) for pid in children.read().split()]
        except FileNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main()
