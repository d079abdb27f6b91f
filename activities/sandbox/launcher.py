"""Two programs of the sandbox. They run as a script with `python -I -S`, so it imports the standard library only.

`launch PLAN` turns itself into a confined command: it sets limits, changes to an unused user, makes the workspace
reachable, and execs. It is a separate process because limits and a mount namespace must be set between fork and exec,
where a worker with threads may not run Python.

`listen PID UID CHANNEL` opens a listening socket inside the network namespace of a sandbox and passes it to the worker,
because a process with threads cannot enter a user namespace. The socket stays in the sandbox's network: a command
connects to its own loopback, the worker accepts, and no process inside has to forward anything.
"""

import contextlib
import ctypes
import json
import os
import resource
import sys
from typing import TypedDict

# placeholders in the arguments for the paths that the launcher made reachable
WORKSPACE, PROGRAM = "{workspace}", "{program}"
ADDRESS = ("127.0.0.1", 3128)  # on the loopback of a sandbox

_CLONE_NEWNS = 0x00020000
_MS_REMOUNTED_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE: nothing below propagates to the host
_MS_RECURSIVE_BIND = 0x1000 | 0x4000
_NS_GET_USERNS = 0xB701
_IP_FREEBIND = 15
_PR_SET_DUMPABLE = 4
_BACKLOG = 64
_libc = ctypes.CDLL(None, use_errno=True)


def shown(folder: str) -> str:
    """The placeholder for a readable folder."""
    return f"{{readable {folder}}}"


class LaunchPlan(TypedDict):
    """The request that the worker writes to the file whose descriptor is the only argument."""

    argv: list[str]
    program: str
    workspace: str
    uid: int | None  # also the group
    show: dict[str, str]  # further folders, by the name that they get
    shown_program: str | None
    readable: list[str]  # further folders, which the arguments name with `shown`
    limits: dict[str, int]


def launch(fd: int) -> None:
    with open(fd, "rb") as given:
        plan: LaunchPlan = json.load(given)
    places = {WORKSPACE: plan["workspace"], PROGRAM: plan["program"]}
    places |= {shown(folder): folder for folder in plan["readable"]}
    if plan["uid"] is not None:
        places = _stage(plan) or places
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # if the host runs out of memory, commands are killed before the worker
    # set last, so that the launcher's own mount tools run without limits
    for name, value in plan["limits"].items():
        _limit(getattr(resource, name), value)
    if plan["uid"] is not None:
        _become(plan["uid"])
    argv = [places.get(word, word) for word in plan["argv"]]
    os.chdir("/")
    # The environment must be empty: inside, /proc/1/environ shows what this exec was given.
    os.execve(argv[0], argv, {})


def _limit(which: int, value: int) -> None:
    """Set the soft and the hard limit, never above the worker's own."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _stage(plan: LaunchPlan) -> dict[str, str] | None:
    """Bind paths into a private /tmp. Root gives its rights away, but the unused user must still reach paths that may
    be below /root. None if the kernel refuses; then the plain paths are used."""
    try:
        _call("unshare", _CLONE_NEWNS)
        _call("mount", b"none", b"/", None, _MS_REMOUNTED_PRIVATE, None)
        # Open them before /tmp is covered, because they may be below it.
        readable = {f"readable{number}": folder for number, folder in enumerate(plan["readable"])}
        paths = {"workspace": plan["workspace"], **plan["show"], **readable}
        opened = {name: os.open(path, os.O_PATH | os.O_DIRECTORY) for name, path in paths.items()}
        _call("mount", b"none", b"/tmp", b"tmpfs", 0, b"mode=755,size=64k")
        for name, fd in opened.items():
            os.mkdir(f"/tmp/{name}", 0o755)
            _call("mount", f"/proc/self/fd/{fd}".encode(), f"/tmp/{name}".encode(), None, _MS_RECURSIVE_BIND, None)
    except PermissionError:
        return None
    program = f"/tmp/{plan['shown_program']}" if plan["shown_program"] else plan["program"]
    places = {shown(folder): f"/tmp/{name}" for name, folder in readable.items()}
    return {WORKSPACE: "/tmp/workspace", PROGRAM: program, **places}


def listen(pid: int, uid: int, channel: int) -> None:
    import fcntl  # here, so that a command is launched without them
    import socket

    if uid >= 0:  # the sandbox's user owns the namespaces; root in a container may have no right to enter them
        _become(uid)
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # lost with the change of user, and /proc cannot be read without it
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    for namespace in (owner, network):
        _call("setns", namespace, 0)
    with socket.socket() as listener, socket.socket(fileno=channel) as worker:
        listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)  # the interface may not be up yet
        listener.bind(ADDRESS)
        listener.listen(_BACKLOG)
        socket.send_fds(worker, [b"."], [listener.fileno()])


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


if __name__ == "__main__":
    _, what, *given = sys.argv
    if what == "launch":
        launch(int(given[0]))
    else:
        listen(int(given[0]), int(given[1]), int(given[2]))
