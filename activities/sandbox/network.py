"""The network of one command: the hosts it may reach, the socket in its sandbox through which it reaches them, and the
proxy behind it. The proxy is a gateway too: it adds a credential to requests to the host that it is bound to, and no
command ever holds it."""

import asyncio
import contextlib
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from activities.egress import FetchError, Guard, check_url
from activities.sandbox import launcher
from domain.credentials import Credential, addresses_of, is_bound
from domain.policy.rules import host_of

_START_S = 10.0
_HEAD_BYTES = 32 * 1024
_CHUNK = 64 * 1024
_NOTED = 5  # refusals that are listed in the command's output
_GATEWAY_PATH = re.compile(r"/(https?)/([^/?#]+)(/.*)")
_NOT_FORWARDED = ("host", "connection", "keep-alive", "te", "upgrade", "http2-settings")
_OVERRIDES = ("x-http-method-override", "x-http-method", "x-method-override")  # a GET that some servers take for a POST
PROXY_URL = f"http://{launcher.ADDRESS[0]}:{launcher.ADDRESS[1]}"
# Programs disagree about the case, and Node reads neither unless it is configured to.
ENVIRONMENT = {
    name: PROXY_URL for word in ("http_proxy", "https_proxy", "all_proxy") for name in (word, word.upper())
} | {"no_proxy": "localhost,127.0.0.1,::1", "NO_PROXY": "localhost,127.0.0.1,::1", "NODE_USE_ENV_PROXY": "1"}


class NetworkUnavailableError(Exception):
    """The sandbox has no guarded network access; the message says why."""


@dataclass(frozen=True)
class NetworkPolicy:
    """`guard` opens the connections; `permitted` decides by the hosts that the agent and the task allow. Requests to
    the gateway get the first of the `credentials` that is bound to their host."""

    guard: Guard
    permitted: Callable[[str], bool] = lambda host: True
    credentials: tuple[Credential, ...] = ()

    def environment(self) -> dict[str, str]:
        """The variables that lead programs to the proxy, and git to the gateway. Nothing in them is secret."""
        found = dict(ENVIRONMENT)
        places = list(dict.fromkeys(place for one in self.credentials for place in addresses_of(one.rules)))
        for number, place in enumerate(places):
            found[f"GIT_CONFIG_KEY_{number}"] = f"url.{PROXY_URL}/{place.replace('://', '/')}/.insteadOf"
            found[f"GIT_CONFIG_VALUE_{number}"] = f"{place}/"
        return found | ({"GIT_CONFIG_COUNT": str(len(places)), "ERRAND_GATEWAY": PROXY_URL} if places else {})


async def listening_socket(pid: int, uid: int | None) -> socket.socket:
    """A socket that listens on the loopback of the sandbox whose init has this pid."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        argv = [sys.executable, "-I", "-S", launcher.__file__, "listen", str(pid), str(-1 if uid is None else uid)]
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


# The only network access of a sandbox: an HTTP proxy in the worker, one for each command. It serves CONNECT and plain
# `http://` requests. The guard of `fetch_url` also opens these connections, and only to hosts that the agent and the
# task allow. The command's own namespace has no interface but its loopback.


# limits on one command's use of the network
MOST_CONNECTIONS = 64  # at a time
MOST_BYTES = 4 * 1024**3  # both ways together
HEAD_S, CONNECT_S, IDLE_S = 10.0, 20.0, 120.0


class _Stream(Protocol):
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes: ...  # noqa: ASYNC109

    async def write(self, buffer: bytes, timeout: float | None = None) -> None: ...  # noqa: ASYNC109

    async def aclose(self) -> None: ...


@dataclass(frozen=True)
class _Request:
    url: str
    host: str  # in the form that rules match
    opening: bytes  # the bytes that the server gets first; empty for a tunnel
    tunnel: bool = False
    gateway: bool = False


class _RefusedError(Exception):
    """A request is refused a connection; the message says why."""


class Proxy:
    """Serves one command from `start` to `close`."""

    def __init__(self, policy: NetworkPolicy) -> None:
        self._policy = policy
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self.refusals: list[str] = []

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=_HEAD_BYTES)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        crowded = len(self._open) >= MOST_CONNECTIONS
        self._open.add(task)
        try:
            if crowded:
                raise _RefusedError(f"more than {MOST_CONNECTIONS} connections at a time")
            await self._serve(reader, writer)
        except (_RefusedError, FetchError) as error:
            self._note(str(error))
            writer.write(_refusal(str(error)))
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the other side is gone
        finally:
            self._open.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise _RefusedError("the head of a request is too long") from None
        request = _parse_request(head, self._policy.credentials)
        if not self._policy.permitted(request.host):
            raise _RefusedError(f"{request.host} is not among the hosts that this agent and this task may reach")
        open_it = self._policy.guard.open_tls if request.gateway else self._policy.guard.open
        server = await open_it(check_url(request.url), CONNECT_S)
        try:
            if request.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                await server.write(request.opening)
            await self._relay(reader, writer, server)
        finally:
            with contextlib.suppress(Exception):  # a broken connection may fail to close, which is harmless
                await server.aclose()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: _Stream) -> None:
        """Forward until the server has sent everything. A client that has sent everything may still receive."""
        up = asyncio.create_task(self._upwards(reader, server))
        down = asyncio.create_task(self._downwards(server, writer))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if up.done() and up.exception() is None:
                await asyncio.wait({down})
        finally:
            up.cancel()
            down.cancel()
            ended = await asyncio.gather(up, down, return_exceptions=True)
            for error in ended:
                if isinstance(error, _RefusedError):
                    self._note(str(error))  # it cannot be reported in the middle of a stream

    async def _upwards(self, reader: asyncio.StreamReader, server: _Stream) -> None:
        while chunk := await reader.read(_CHUNK):
            self._count(chunk)
            await server.write(chunk, timeout=IDLE_S)

    async def _downwards(self, server: _Stream, writer: asyncio.StreamWriter) -> None:
        while chunk := await server.read(_CHUNK, timeout=IDLE_S):
            self._count(chunk)
            writer.write(chunk)
            await writer.drain()

    def _count(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes > MOST_BYTES:
            raise _RefusedError(f"the command moved more than {MOST_BYTES:,} bytes")

    def _note(self, refusal: str) -> None:
        if refusal not in self.refusals and len(self.refusals) < _NOTED:
            self.refusals.append(refusal)


def _parse_request(head: bytes, credentials: tuple[Credential, ...]) -> _Request:
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    tokens = first.split(" ")
    if len(tokens) != 3 or not tokens[2].startswith("HTTP/1."):
        raise _RefusedError("this is not a request to an HTTP proxy")
    if any(line[:1] in (" ", "\t") or "\n" in line or "\r" in line for line in (first, *lines)):
        raise _RefusedError("a header of the request is malformed")
    method, target, _ = tokens
    if method == "CONNECT":
        if "/" in target or not target.rpartition(":")[2].isdigit():
            raise _RefusedError("CONNECT needs a host and a port")
        url = f"http://{target}/"
        check_url(url)
        return _Request(url, host_of(url), b"", tunnel=True)
    kept = [line for line in lines if not _is_dropped(line)]
    path = target.removeprefix(PROXY_URL)  # some programs ask the proxy for the gateway too
    if path.startswith("/"):
        return _parse_gateway_request(method, path, kept, credentials)
    parsed = check_url(target)
    if parsed.scheme != "http":
        raise _RefusedError("only http:// requests can be forwarded; https:// needs CONNECT")
    return _Request(target, host_of(target), _write_opening(method, parsed.raw_path, parsed.netloc, kept))


def _parse_gateway_request(method: str, path: str, lines: list[str], credentials: tuple[Credential, ...]) -> _Request:
    """A request to /https/HOST/PATH: to that host over TLS, with the credential that is bound to it."""
    found = _GATEWAY_PATH.fullmatch(path)
    if found is None:
        raise _RefusedError("the gateway is asked for /https/HOST/PATH")
    url = f"{found[1]}://{found[2]}{found[3]}"
    parsed = check_url(url)
    credential = next((one for one in credentials if is_bound(one.rules, url)), None)
    if credential is None:
        raise _RefusedError(f"this task has no credential for {found[1]}://{found[2]}")
    asked = parsed.raw_path.decode("ascii")
    if credential.refuses(method, asked):
        raise _RefusedError(
            f"the credential {credential.name} may only read, and {method} of this path may change something"
        )
    kept = [line for line in lines if line.partition(":")[0].strip().lower() not in ("authorization", *_OVERRIDES)]
    kept.append(f"Authorization: {credential.header(asked)}")
    return _Request(url, host_of(url), _write_opening(method, parsed.raw_path, parsed.netloc, kept), gateway=True)


def _write_opening(method: str, path: bytes, host: bytes, lines: list[str]) -> bytes:
    first = [f"{method} {path.decode('ascii')} HTTP/1.1", f"Host: {host.decode('ascii')}"]
    return "\r\n".join([*first, *lines, "Connection: close", "", ""]).encode("latin-1")


def _is_dropped(line: str) -> bool:
    name = line.partition(":")[0].strip().lower()
    return name in _NOT_FORWARDED or name.startswith("proxy-")


def _refusal(reason: str) -> bytes:
    text = f"Refused by the network of the sandbox: {reason}\n".encode()
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close"
    return head.encode() + b"\r\n\r\n" + text
