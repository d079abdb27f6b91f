"""Ports: the wanted one, else the next free one, said aloud; one that was asked for by name is never changed."""

import contextlib
import socket
import sys
from collections.abc import Callable
from types import TracebackType

from deploy.state import StackError

TRIES = 100


class Ports:
    """Hands out ports, and holds its claims on them until it is closed."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._claims = contextlib.ExitStack()
        self._given: set[int] = set()

    def __enter__(self) -> "Ports":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claims.close()

    def choose(self, name: str, wanted: int, *, host: str = "127.0.0.1", variable: str | None = None) -> int:
        """`variable` names the setting by which this very port was asked for; 0 means any."""
        port = wanted = wanted or _bind(host, 0)
        while problem := self._claim(host, port):
            if variable:
                raise StackError(f"{variable}: cannot listen on {host}:{port}: {problem}")
            port += 1
            if port == wanted + TRIES:
                raise StackError(f"no port for {name}: {host} has none free from {wanted} to {port - 1}")
        if port != wanted:
            self._log(f"port {wanted} is in use; {name} takes {port}")
        self._given.add(port)
        return port

    def _claim(self, host: str, port: int) -> str | None:
        """What is wrong with this port; None: it is ours."""
        if port > 65_535:
            return "there is no such port"  # the resolver would take it modulo 65,536
        if port in self._given:
            return "already given"
        try:
            _bind(host, port)
            if sys.platform == "linux":
                # another stack that starts at this moment would find the port free too, until our server listens;
                # a name of this kind is seen by all accounts and goes when we go
                claim = self._claims.enter_context(socket.socket(socket.AF_UNIX))
                claim.bind(f"\0errand-port-{port}")
        except OSError as error:
            return error.strerror or str(error)
        return None


def _bind(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # as the servers do: connections of a server that just ended must not count as busy
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        bound: int = probe.getsockname()[1]
        return bound
