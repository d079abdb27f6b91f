"""Choosing ports: a busy default is replaced by the next free port, which is logged; a configured port never is."""

import contextlib
import socket
import sys
from collections.abc import Callable
from types import TracebackType

from deploy.state import StackError

TRIES = 100


class Ports:
    """Chooses ports, and reserves them until it is closed."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._claims = contextlib.ExitStack()
        self._chosen: set[int] = set()

    def __enter__(self) -> "Ports":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._claims.close()

    def choose(self, name: str, wanted: int, *, host: str = "127.0.0.1", variable: str | None = None) -> int:
        """Choose the wanted port or the next free one; 0 is any. `variable` is the setting that requires this port."""
        port = wanted = wanted or _bind(host, 0)
        while problem := self._claim(host, port):
            if variable:
                raise StackError(f"{variable}: cannot listen on {host}:{port}: {problem}")
            port += 1
            if port == wanted + TRIES:
                raise StackError(f"no port for {name}: {host} has none free from {wanted} to {port - 1}")
        if port != wanted:
            self._log(f"port {wanted} is in use; {name} takes {port}")
        self._chosen.add(port)
        return port

    def _claim(self, host: str, port: int) -> str | None:
        """Reserve a port; returns the problem, or None."""
        if port > 65_535:
            return "there is no such port"  # the resolver would take it modulo 65,536
        if port in self._chosen:
            return "already chosen"
        try:
            _bind(host, port)
            if sys.platform == "linux":
                # Another stack that starts now would also find the port free, until our server listens. All accounts
                # see an abstract socket name, and the kernel frees it when this process ends.
                claim = self._claims.enter_context(socket.socket(socket.AF_UNIX))
                claim.bind(f"\0errand-port-{port}")
        except OSError as error:
            return error.strerror or str(error)
        return None


def _bind(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # like the servers: connections of a server that has just ended must not count as busy
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        bound: int = probe.getsockname()[1]
        return bound
