"""The network of one command: the hosts it may reach, and the socket in its sandbox through which it reaches them."""

import asyncio
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass

from activities.egress import Guard
from activities.sandbox import listener

_START_S = 10.0

PROXY_URL = f"http://{listener.ADDRESS[0]}:{listener.ADDRESS[1]}"
# Programs disagree about the case, and Node reads neither unless it is configured to.
ENVIRONMENT = {
    name: PROXY_URL for word in ("http_proxy", "https_proxy", "all_proxy") for name in (word, word.upper())
} | {"no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1", "NODE_USE_ENV_PROXY": "1"}


class NetworkUnavailableError(Exception):
    """The sandbox has no guarded network access; the message says why."""


@dataclass(frozen=True)
class NetworkPolicy:
    """`guard` opens the connections; `permitted` decides by the hosts that the agent and the task allow."""

    guard: Guard
    permitted: Callable[[str], bool] = lambda host: True


async def listening_socket(pid: int, uid: int | None) -> socket.socket:
    """A socket that listens on the loopback of the sandbox whose init has this pid."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        argv = [sys.executable, "-I", "-S", listener.__file__, str(pid), str(-1 if uid is None else uid)]
        process = await asyncio.create_subprocess_exec(
            *argv,
            str(theirs.fileno()),
            pass_fds=[theirs.fileno()],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={},
            cwd="/",
        )
        try:
            async with asyncio.timeout(_START_S):
                _, errors = await process.communicate()
        except TimeoutError:
            raise NetworkUnavailableError("the network of the sandbox could not be opened in time") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise NetworkUnavailableError(errors.decode(errors="replace").strip().rpartition("\n")[2])
        _, [received], _, _ = socket.recv_fds(ours, 1, 1)
        return socket.socket(fileno=received)
