"""Child processes of the supervisor: they cannot outlive it, and their health is checked."""

import asyncio
import contextlib
import ctypes
import http.client
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from deploy.data_dir import Account
from settings import ROOT

PR_SET_PDEATHSIG = 1
LOG_LIMIT = 20_000_000

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process of the stack."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    inherit: bool = True  # False: `env` is the whole environment, so that this process gets none of our secrets
    address: str = ""  # shown to people
    check: str = ""  # tcp:// or http:// address that answers while the part is healthy; empty: it only has to be alive
    ready: Callable[[int], bool] | None = None  # called with the pid after every start, before `check`
    prepare: Callable[[], None] | None = None  # called before every start
    follow_up: "Part | None" = None  # runs to its end after every start, before the part counts as ready
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL  # sent by the kernel when the supervisor dies (Linux)
    account: Account | None = None
    cwd: Path = ROOT


async def spawn(part: Part, log: Path) -> Process:
    """Start it in its own session, so that Ctrl-C in our terminal reaches the supervisor only."""
    rotate(log)
    account = part.account
    identity = {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *part.argv,
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            cwd=part.cwd,
            start_new_session=True,
            env=None if part.inherit else dict(part.env),
            # runs after the change of account, which would clear the parent-death signal
            preexec_fn=partial(enter, part.env if part.inherit else {}, os.getpid(), part.death_signal),
            **identity,  # type: ignore[arg-type]
        )


def enter(env: Mapping[str, str], parent: int | None, death_signal: signal.Signals) -> None:
    """Runs in the child before its program: adds `env`, and requests a signal for when `parent` dies (None: never)."""
    for name, value in env.items():
        os.putenv(name, value)
    if parent and _libc:
        _libc.prctl(PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # the parent died before the signal was requested
            os._exit(1)


def kill_group(pid: int) -> None:
    """Kill the process group of a part, including every process that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > LOG_LIMIT:
        log.replace(log.with_suffix(".log.1"))


def tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join("  " + line for line in log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


def answers(check: str) -> bool:
    """Whether the address accepts a connection (tcp://) or responds with success (http://)."""
    url = urlsplit(check)
    if url.scheme == "http":
        return get(check) is not None
    try:
        socket.create_connection((url.hostname or "", url.port or 0), timeout=1).close()
    except OSError:
        return False
    return True


def get(address: str) -> bytes | None:
    """The body of the response; None if there is none, or if it is an error."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port or 0, timeout=2)
    try:
        with contextlib.closing(connection):
            connection.request("GET", url.path)
            response = connection.getresponse()
            return response.read() if response.status < 400 else None
    except (OSError, http.client.HTTPException):
        return None
