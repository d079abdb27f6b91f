"""Guarded network access: a Guard opens every outbound connection that a user or a model asks for.

A name is resolved once, every address must be public, and the connection goes to an address that was checked. So a name
that changes its address between check and connect gains nothing.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpcore2
import httpx2

from domain.policy.addresses import public

_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_HOPS = 5
WEB_PORTS = frozenset({80, 443})
_DEFAULT_PORTS = {"http": 80, "https": 443}

HttpError = httpx2.HTTPError  # of a client: what its server did wrong, for those who may not import the library
Resolve = Callable[[str, int], Awaitable[list[str]]]
Permitted = Callable[[str], Awaitable[bool]]  # whether this URL may be followed


class FetchError(Exception):
    """A URL was refused or did not answer; the message may be shown to a model or a caller."""


@dataclass(frozen=True)
class Fetched:
    url: str  # after redirects
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool


# A separate pool: the owner of a name decides how long its lookup takes, and the loop's lookups, of the model and the
# database, share few threads. It has so many that one lookup hardly ever waits for another.
_lookups = ThreadPoolExecutor(128, thread_name_prefix="lookup")


async def resolve(host: str, port: int) -> list[str]:
    look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_lookups, look_up)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Fetcher:
    """Fetches URLs through a Guard, which explains `allow_private_hosts`, `ports` and `setting`."""

    def __init__(
        self,
        allow_private_hosts: Iterable[str] = (),
        *,
        ports: frozenset[int] | None = WEB_PORTS,
        setting: str = "ERRAND_ALLOW_PRIVATE_HOSTS",
        max_bytes: int = 2_000_000,
        timeout_s: float = 30.0,
        resolve: Resolve = resolve,
        backend: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self._guard = Guard(allow_private_hosts, ports=ports, setting=setting, resolve=resolve, backend=backend)
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._tls = httpx2.create_ssl_context(trust_env=False)

    async def get(self, url: str, permitted: Permitted | None = None) -> Fetched:
        """Fetch a URL and follow redirects. Each is checked like the first, and must be permitted."""
        async with _within(self._timeout_s):
            for _ in range(_MOST_HOPS + 1):
                answer = await self._once("GET", url, {}, b"")
                place = answer.headers.get("location")
                if answer.status not in _REDIRECTS or not place:
                    return answer
                try:
                    url = str(httpx2.URL(answer.url).join(place))
                except (httpx2.InvalidURL, ValueError):
                    raise FetchError("The server redirects to something that is not a URL.") from None
                if permitted is not None and not await permitted(url):
                    raise FetchError(f"It redirects to {url}, which the rules of this task do not allow.")
        raise FetchError(f"More than {_MOST_HOPS} redirects.")

    async def send(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> Fetched:
        """Make one request; a redirect is returned like any other response."""
        async with _within(self._timeout_s):
            return await self._once(method, url, headers, content)

    def client(self, headers: Mapping[str, str], allowance: "ByteAllowance", timeout_s: float) -> httpx2.AsyncClient:
        """A client for one exchange of several requests with one server, which may send so many bytes in all. It
        follows no redirect."""
        return httpx2.AsyncClient(
            transport=_BoundedTransport(self._guard, self._tls, allowance),
            trust_env=False,
            follow_redirects=False,
            timeout=timeout_s,
            headers={"user-agent": "errand", "accept-encoding": "identity", **headers},
        )

    async def _once(self, method: str, url: str, headers: Mapping[str, str], content: bytes) -> Fetched:
        target = check_url(url)
        # A client per request, so that no cookie or connection is used for another one.
        async with httpx2.AsyncClient(
            transport=_GuardedTransport(self._guard, self._tls),
            trust_env=False,
            follow_redirects=False,
            timeout=self._timeout_s,
            headers={"user-agent": "errand", "accept-encoding": "gzip, identity"},
        ) as client:
            try:
                async with client.stream(method, target, headers=dict(headers), content=content or None) as response:
                    body, truncated = await self._body(response)
                    return Fetched(str(response.url), response.status_code, response.headers, body, truncated)
            except httpx2.HTTPError as error:
                raise FetchError(f"{target.host} did not answer properly ({type(error).__name__}).") from None

    async def _body(self, response: httpx2.Response) -> tuple[bytes, bool]:
        """Unpack the raw bytes ourselves: the client's decoder has no limit, and a small response may expand
        enormously."""
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip", "x-gzip", "deflate"):
            raise FetchError(f"The answer is packed as {encoding!r}, which was not asked for.")
        packed = zlib.decompressobj(wbits=47) if encoding not in ("identity", "") else None
        body = bytearray()
        async for chunk in response.aiter_raw():
            try:
                body += packed.decompress(chunk, self._max_bytes + 1 - len(body)) if packed else chunk
            except zlib.error:
                raise FetchError("The answer is packed badly.") from None
            if len(body) > self._max_bytes:
                return bytes(body[: self._max_bytes]), True
        return bytes(body), False


@contextlib.asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """A time limit for everything inside, including name lookups and redirects."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise FetchError(f"No complete answer within {seconds:.0f} seconds.") from None


def check_url(url: str) -> httpx2.URL:
    try:
        target = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError):
        raise FetchError("This is not a valid URL.") from None
    if (target.port or 0) > 65_535:
        raise FetchError("There is no such port.")
    if target.scheme not in ("http", "https") or not target.host:
        raise FetchError("Only http:// and https:// URLs with a host can be fetched.")
    if target.userinfo:
        raise FetchError("URLs with a user name or password are refused.")
    return target


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, guard: "Guard", tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls, trust_env=False)
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=tls, network_backend=guard)


class ByteAllowance:
    """How many bytes may come in, over several answers."""

    def __init__(self, most: int) -> None:
        self._left = self._most = most

    def take(self, size: int) -> None:
        self._left -= size
        self.check()

    def check(self) -> None:
        """A library that reads for us may hide why it failed, so the caller asks again afterwards."""
        if self._left < 0:
            raise FetchError(f"The server sends more than {self._most:,} bytes.")


class _BoundedTransport(_GuardedTransport):
    """Redirects are refused, and packed answers, as the client's own decoder has no bound: a small one may hold
    much."""

    def __init__(self, guard: "Guard", tls: ssl.SSLContext, allowance: "ByteAllowance") -> None:
        super().__init__(guard, tls)
        self._allowance = allowance

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if 300 <= response.status_code < 400:
            await response.aclose()
            raise FetchError(f"{request.url.host} redirects elsewhere, which is not followed.")
        if encoding not in ("identity", ""):
            await response.aclose()
            raise FetchError(f"The answer is packed as {encoding[:40]!r}, which was not asked for.")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream, self._allowance)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, allowance: "ByteAllowance") -> None:
        self._inner = inner
        self._allowance = allowance

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._allowance.take(len(chunk))
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class Guard(httpcore2.AsyncNetworkBackend):
    """Opens every connection, and is the only place that decides which addresses may be reached.

    `allow_private_hosts` lists `host` or `host:port` entries that may have private addresses, on any port that the
    entry names; `setting` is the operator's name for that list. Other hosts are reached only on `ports`; None: on any
    port.
    """

    def __init__(
        self,
        allow_private_hosts: Iterable[str] = (),
        *,
        ports: frozenset[int] | None = WEB_PORTS,
        setting: str = "ERRAND_ALLOW_PRIVATE_HOSTS",
        resolve: Resolve = resolve,
        backend: httpcore2.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._allowed = frozenset(entry.lower() for entry in allow_private_hosts)
        self._ports = ports
        self._setting = setting
        self._resolve = resolve
        self._inner = backend or httpcore2.AnyIOBackend()

    async def open(self, url: httpx2.URL, timeout_s: float) -> httpcore2.AsyncNetworkStream:
        """A connection to the host and port of a checked URL; without TLS, whatever its scheme."""
        port = url.port or _DEFAULT_PORTS[url.scheme]
        try:
            async with _within(timeout_s):
                return await self.connect_tcp(url.raw_host.decode("ascii"), port, timeout_s)
        except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            raise FetchError(f"{url.host} did not answer ({type(error).__name__}).") from None

    async def open_tls(self, url: httpx2.URL, timeout_s: float) -> httpcore2.AsyncNetworkStream:
        """The same with TLS if the address says so; the certificate is checked against the host."""
        stream = await self.open(url, timeout_s)
        if url.scheme != "https":
            return stream
        self._tls = self._tls or httpx2.create_ssl_context(trust_env=False)
        try:
            return await stream.start_tls(self._tls, url.raw_host.decode("ascii"), timeout_s)
        except (httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            await stream.aclose()
            raise FetchError(f"{url.host} has no TLS with a valid certificate ({type(error).__name__}).") from None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the shape is httpcore2's)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        for left, address in enumerate(addresses, start=1 - len(addresses)):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if left == 0:
                    raise
        raise FetchError(f"{host} has no address.")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 (the shape is httpcore2's)
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        raise FetchError("Sockets of this host are refused.")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError):
            raise FetchError(f"{host} cannot be found.") from None
        name = host.lower().rstrip(".")
        if name in self._allowed or f"{name}:{port}" in self._allowed:
            return addresses
        if not all(public(address) for address in addresses):
            raise FetchError(
                f"{host} is refused: its address is not public. An operator can allow it in {self._setting}."
            )
        if self._ports is not None and port not in self._ports:
            ports = ", ".join(map(str, sorted(self._ports)))
            raise FetchError(
                f"{host} is refused on port {port}; allowed: {ports}. An operator can add ports in ERRAND_ALLOW_PORTS."
            )
        return addresses
