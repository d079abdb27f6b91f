"""The HTTP transport of the model's client: HTTP/1.1 directly on the event loop, parsed by httptools.

A streamed reply arrives in hundreds of small pieces. The usual transport passes each of them through httpcore2, anyio
and h11, which takes more CPU than everything that the worker then does with it.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from urllib.request import getproxies

import httptools
import httpx2

from activities.model.first_address import opened_first

KEEP_SECONDS = 4.0  # an idle connection is used again within this time; many servers close it after five
MOST_IDLE = 100
MOST_HEAD = 100_000  # bytes of a status line with its headers
MOST_BUFFERED = 1_000_000  # bytes of a body that nobody has read yet; then the sender waits
PORTS = {"http": 80, "https": 443}
# As the SDK's own client: notice a peer that disappeared during a long silence.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 60, "TCP_KEEPCNT": 5}

Origin = tuple[str, str, int]


def direct_transport() -> "ModelTransport | None":
    """The transport for the model's client; None if the environment names a proxy, which the usual one can use."""
    return None if getproxies().keys() & {"http", "https", "all"} else ModelTransport()


class ModelTransport(httpx2.AsyncBaseTransport):
    """Connections are kept for the next request to the same host. There is no limit of their number: the worker limits
    the number of its calls."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[_Connection]] = {}
        self._tls: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        timeouts = request.extensions.get("timeout", {})
        head, body = _head(request), await request.aread()
        scheme = request.url.scheme
        if scheme not in PORTS:
            raise httpx2.UnsupportedProtocol(f"{scheme}:// is not HTTP")
        origin = (scheme, request.url.host, request.url.port or PORTS[scheme])
        connection = self._take(origin) or await self._connect(origin, timeouts.get("connect"))
        try:
            connection.send(head, body)
            await connection.head(timeouts.get("read"))
        except BaseException:
            connection.abort()
            raise
        return httpx2.Response(
            connection.status,
            headers=connection.headers,
            stream=_Body(self, origin, connection, timeouts.get("read")),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        for origin in self._idle:
            while (connection := self._take(origin)) is not None:
                connection.abort()

    def release(self, origin: Origin, connection: "_Connection") -> None:
        """Keep a connection whose response was read to its end; close any other."""
        idle = self._idle.setdefault(origin, [])
        if not connection.reusable or len(idle) >= MOST_IDLE:
            connection.abort()
            return
        idle.append(connection)
        connection.expires = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._expire, origin, connection)

    def _expire(self, origin: Origin, connection: "_Connection") -> None:
        self._idle[origin].remove(connection)
        connection.abort()

    def _take(self, origin: Origin) -> "_Connection | None":
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()  # the one that was used last: the others can expire
            assert connection.expires is not None
            connection.expires.cancel()
            if connection.reusable:
                return connection
        return None

    async def _connect(self, origin: Origin, seconds: float | None) -> "_Connection":
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        tls, name = (self._context(), host) if scheme == "https" else (None, None)
        try:
            async with asyncio.timeout(seconds):
                opened = await opened_first(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            async with asyncio.timeout(seconds):
                _, made = await loop.create_connection(_Connection, sock=opened, ssl=tls, server_hostname=name)
        except TimeoutError as error:
            raise httpx2.ConnectTimeout(f"no connection to {host} within {seconds} s") from error
        except OSError as error:  # also a certificate that is not valid
            raise httpx2.ConnectError(str(error)) from error
        return made

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = httpx2.create_ssl_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


class _Body(httpx2.AsyncByteStream):
    def __init__(
        self, transport: ModelTransport, origin: Origin, connection: "_Connection", seconds: float | None
    ) -> None:
        self._transport = transport
        self._origin = origin
        self._connection: _Connection | None = connection
        self._seconds = seconds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._connection is not None and (piece := await self._connection.piece(self._seconds)):
            yield piece

    async def aclose(self) -> None:
        if self._connection is not None:
            self._transport.release(self._origin, self._connection)
            self._connection = None


class _Connection(asyncio.Protocol):
    """One connection and its current response. httptools calls the methods `on_…` while it parses."""

    def __init__(self) -> None:
        self.expires: asyncio.TimerHandle | None = None
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._parser = _parser(self)
        self._waiter: asyncio.Future[None] | None = None
        self._failure: httpx2.TransportError | None = None
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._head_size = 0
        self._has_head = self._complete = self._kept_open = False

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent: the response is complete, and the connection is open."""
        return self._kept_open and self._failure is None and not self._paused

    def send(self, head: bytes, body: bytes) -> None:
        self._parser = _parser(self)
        self._pieces, self._buffered, self._head_size = [], 0, 0
        self._has_head = self._complete = self._kept_open = False
        self._transport.writelines([head, body])

    async def head(self, seconds: float | None) -> None:
        """Wait for the status and the headers."""
        while not self._has_head:
            await self._progress(seconds)

    async def piece(self, seconds: float | None) -> bytes:
        """What has arrived of the body since the last call; empty at its end."""
        while not self._pieces and not self._complete:
            await self._progress(seconds)
        pieces, self._pieces, self._buffered = self._pieces, [], 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return b"".join(pieces)

    def abort(self) -> None:
        self._transport.abort()

    async def _progress(self, seconds: float | None) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._time_out)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _time_out(self) -> None:
        self._fail(httpx2.ReadTimeout("nothing arrived in time"))

    def _fail(self, failure: httpx2.TransportError) -> None:
        """End the connection; the first failure is the one that its reader gets."""
        self._failure = self._failure or failure
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        _keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx2.RemoteProtocolError(f"the response is not HTTP: {error}"))
            return
        if not self._has_head:
            self._head_size += len(data)
            if self._head_size > MOST_HEAD:
                self._fail(httpx2.RemoteProtocolError("the headers of the response are too long"))
        elif self._buffered > MOST_BUFFERED and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        framed = {name.lower() for name, _ in self.headers} & {b"content-length", b"transfer-encoding"}
        if self._has_head and error is None and not framed:
            self._complete = True  # such a body ends with its connection
        if isinstance(error, OSError):
            self._fail(httpx2.ReadError(str(error)))
        self._fail(httpx2.RemoteProtocolError("the server closed the connection before the end of its response"))

    def on_message_begin(self) -> None:
        if self._complete:  # the error becomes one of httptools, and the connection is closed
            raise ValueError("the server sent more than its response")
        self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # later ones are trailers, which nobody needs
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200  # before it there may be interim responses

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._buffered += len(body)

    def on_message_complete(self) -> None:
        self._complete = self._has_head
        self._kept_open = self._has_head and self._parser.should_keep_alive()


def _parser(connection: _Connection) -> httptools.HttpResponseParser:
    parser = httptools.HttpResponseParser(connection)
    # Some gateways send these, and in a response they do no harm.
    parser.set_dangerous_leniencies(lenient_chunked_length=True, lenient_spaces_after_chunk_size=True)
    return parser


def _head(request: httpx2.Request) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw]
    if any(b"\n" in line or b"\r" in line for line in lines):
        raise httpx2.LocalProtocolError("a header contains a line break")
    return b"\r\n".join([*lines, b"", b""])


def _keep_alive(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # macOS names one of them differently
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
