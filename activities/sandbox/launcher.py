"""Turns itself into a confined command: limits, an unused user and a reachable workspace first, then exec.

Run as a script with `python -I -S`, so it imports the standard library only. A separate process because limits and a
mount namespace must be set between fork and exec, where a worker full of threads may not run Python.
"""

import contextlib
import ctypes
import json
import os
import resource
import sys
from typing import TypedDict

WORKSPACE, PROGRAM = "{workspace}", "{program}"  # in the arguments: where the launcher made these reachable

_CLONE_NEWNS = 0x00020000
_MS_REMOUNTED_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE: nothing below propagates to the host
_MS_RECURSIVE_BIND = 0x1000 | 0x4000
_libc = ctypes.CDLL(None, use_errno=True)


class LaunchPlan(TypedDict):
    """What the worker writes to the file whose descriptor is the one argument."""

    argv: list[str]
    program: str
    workspace: str
    uid: int | None  # also the group
    show: dict[str, str]  # further folders, by the name that they get
    shown_program: str | None
    limits: dict[str, int]


def main() -> None:
    with open(int(sys.argv[1]), "rb") as given:
        plan: LaunchPlan = json.load(given)
    places = {WORKSPACE: plan["workspace"], PROGRAM: plan["program"]}
    if plan["uid"] is not None:
        places = _stage(plan) or places
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # when the host runs out of memory, commands end before the worker does
    # only now: mounting tools of the launcher itself need no limit
    for name, value in plan["limits"].items():
        _limit(getattr(resource, name), value)
    if plan["uid"] is not None:
        os.setgroups([])
        os.setresgid(plan["uid"], plan["uid"], plan["uid"])
        os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    argv = [places.get(word, word) for word in plan["argv"]]
    os.chdir("/")
    # the empty environment is the point: inside, /proc/1/environ shows what this exec was given
    os.execve(argv[0], argv, {})


def _limit(which: int, value: int) -> None:
    """Soft and hard alike, and never above what the worker itself has."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _stage(plan: LaunchPlan) -> dict[str, str] | None:
    """Root gives its rights away but the unused user must still reach paths that may lie below /root:
    they are bound into a private /tmp. None where the kernel refuses; then the plain paths must do."""
    try:
        _call("unshare", _CLONE_NEWNS)
        _call("mount", b"none", b"/", None, _MS_REMOUNTED_PRIVATE, None)
        # opened before /tmp is covered: they may lie there
        shown = {"workspace": plan["workspace"], **plan["show"]}
        opened = {name: os.open(path, os.O_PATH | os.O_DIRECTORY) for name, path in shown.items()}
        _call("mount", b"none", b"/tmp", b"tmpfs", 0, b"mode=755,size=64k")
        for name, fd in opened.items():
            os.mkdir(f"/tmp/{name}", 0o755)
            _call("mount", f"/proc/self/fd/{fd}".encode(), f"/tmp/{name}".encode(), None, _MS_RECURSIVE_BIND, None)
    except PermissionError:
        return None
    program = f"/tmp/{plan['shown_program']}" if plan["shown_program"] else plan["program"]
    return {WORKSPACE: "/tmp/workspace", PROGRAM: program}


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


if __name__ == "__main__":
    main()
