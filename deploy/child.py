"""A child process of the supervisor: how it is started so that it can never outlive us, and how its health is asked."""

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

from deploy.place import Account
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
    inherit: bool = True  # False: `env` is the whole environment, so that no secret of ours reaches this process
    address: str = ""  # what people are shown
    check: str = ""  # tcp:// or http:// address that answers while the part is well; empty: being alive is enough
    ready: Callable[[int], bool] | None = None  # asked with the pid at every start, before `check`
    prepare: Callable[[], None] | None = None  # called before every start
    stop_signal: signal.Signals = signal.SIGTERM
    death_signal: signal.Signals = signal.SIGKILL  # sent by the system when the supervisor dies (Linux)
    account: Account | None = None
    cwd: Path = ROOT


async def spawn(part: Part, log: Path) -> Process:
    """Start it in a session of its own, so that Ctrl-C in our terminal reaches us alone."""
    rotate(log)
    dropped = part.account
    identity = {"user": dropped.uid, "group": dropped.gid, "extra_groups": []} if dropped else {}
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
    """In the child, before its program: our environment plus `env`, and a signal when `parent` dies (None: never)."""
    for name, value in env.items():
        os.putenv(name, value)
    if parent and _libc:
        _libc.prctl(PR_SET_PDEATHSIG, death_signal)
        if os.getppid() != parent:  # it died before we could ask to be told
            os._exit(1)


def kill_group(pid: int) -> None:
    """What a part started and left behind dies with it."""
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
    """Whether the address answers: a connection for tcp://, a success for http://."""
    url = urlsplit(check)
    if url.scheme == "http":
        return get(check) is not None
    try:
        socket.create_connection((url.hostname or "", url.port or 0), timeout=1).close()
    except OSError:
        return False
    return True


def get(address: str) -> bytes | None:
    """What the address answers; None if it does not, or not with success."""
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port or 0, timeout=2)
    try:
        with contextlib.closing(connection):
            connection.request("GET", url.path)
            answer = connection.getresponse()
            return answer.read() if answer.status < 400 else None
    except (OSError, http.client.HTTPException):
        return None
