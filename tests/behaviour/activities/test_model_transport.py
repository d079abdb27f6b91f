"""The transport of the model's client against a server that sends exactly the bytes of a test."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest
import uvloop

from activities.model import transport
from activities.model.first_address import Address
from activities.model.transport import ModelTransport, direct_transport
from deploy import certificates

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, list[int]]]:
    """The address, and a list that gets an entry for each connection."""
    made: list[int] = []
    handled: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(1)
        handled.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await handler(reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async with await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls) as server:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/", made
        await asyncio.wait({task for task in handled if task}, timeout=5)


async def request_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


def answering(*parts: bytes, then: Handler | None = None) -> Handler:
    """Answers each request of a connection with these parts, each in a write of its own."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await request_of(reader)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            if then is not None:
                await then(reader, writer)
                return

    return handle


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


def client(seconds: float = 5.0) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=ModelTransport(), timeout=seconds)


async def test_request_arrives_whole_and_pieces_arrive_as_they_are_sent() -> None:
    seen: list[bytes] = []
    first = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await request_of(reader))
        writer.write(CHUNKED + b"3\r\none\r\n")
        await first.wait()  # the second piece is only sent once the first was read
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with serving(handle) as (url, _), client() as http:
        request = http.build_request("POST", url + "a?b=c", content=b"x" * 300_000, headers={"X-Key": "k"})
        pieces = (await http.send(request, stream=True)).aiter_raw()
        assert await anext(pieces) == b"one"
        first.set()
        assert [piece async for piece in pieces] == [b"two"]
    assert seen[0].startswith(b"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:") and b"\r\nX-Key: k\r\n" in seen[0]
    assert seen[0].endswith(b"\r\n\r\n" + b"x" * 300_000)


@pytest.mark.parametrize(
    "parts",
    [
        (OK + b"Content-Length: 4\r\n\r\nbody",),
        (CHUNKED + b"2\r\nbo\r\n", b"2;extension=1\r\ndy\r\n0\r\nTrailer: x\r\n\r\n"),
        (CHUNKED + b"4\r\nbody\r\n0\r\nTrailer: x\r\n\r\n",),
        (OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n4  \r\nbody\r\n0\r\n\r\n",),
        (
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK + b"Content-Length: 4\r\n\r\nbody",
        ),
        (b"HTTP/1.1 2", b"00 OK\r\nContent-Le", b"ngth: 4\r", b"\n\r\nb", b"ody"),
    ],
    ids=["length", "chunked", "trailer", "sloppy", "interim", "split"],
)
async def test_response_is_read_and_its_connection_used_again(parts: tuple[bytes, ...]) -> None:
    async with serving(answering(*parts)) as (url, made), client() as http:
        for _ in range(3):
            response = await http.post(url, content=b"x")
            assert (response.status_code, response.content) == (200, b"body")
            assert "link" not in response.headers and "trailer" not in response.headers
    assert len(made) == 1


@pytest.mark.parametrize(
    ("parts", "then"),
    [
        ((OK + b"Connection: close\r\nContent-Length: 4\r\n\r\nbody",), wait),
        ((b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody",), wait),
        ((OK + b"\r\nbo", b"dy"), close),  # its end is that of the connection
        ((OK + b"Content-Length: 4\r\n\r\nbody" + OK,), wait),  # more than was asked for
        ((OK + b"Content-Length: 4\r\n\r\nbody", b"junk"), wait),
    ],
    ids=["close", "http-1.0", "until-close", "second-response", "junk"],
)
async def test_connection_that_cannot_be_trusted_is_not_used_again(parts: tuple[bytes, ...], then: Handler) -> None:
    async with serving(answering(*parts, then=then)) as (url, made), client() as http:
        for _ in range(2):
            response = await http.post(url, content=b"x")
            assert (response.status_code, response.content) == (200, b"body")
            await asyncio.sleep(0.05)
    assert len(made) == 2


async def test_idle_connection_that_the_server_closed_is_not_used_again() -> None:
    async with serving(answering(OK + b"Content-Length: 0\r\n\r\n", then=close)) as (url, made), client() as http:
        for _ in range(2):
            assert (await http.get(url)).status_code == 200
            await asyncio.sleep(0.05)
    assert len(made) == 2


async def test_response_that_nobody_read_does_not_block_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MOST_BUFFERED", 10)
    answer = OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 1_000
    async with serving(answering(answer)) as (url, _), client(1) as http:
        for _ in range(2):
            async with http.stream("GET", url) as response:
                assert response.status_code == 200


async def test_closed_client_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "KEEP_SECONDS", 0.05)
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
    try:
        async with serving(answering(OK + b"Content-Length: 0\r\n\r\n")) as (url, _):
            async with client() as http:
                assert (await http.get(url)).status_code == 200
            await asyncio.sleep(0.1)
    finally:
        asyncio.get_running_loop().set_exception_handler(None)
    assert problems == []


async def test_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "KEEP_SECONDS", 0.05)
    left = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(OK + b"Content-Length: 0\r\n\r\n")
        await reader.read()
        left.set()

    async with serving(handle) as (url, _), client() as http:
        assert (await http.get(url)).status_code == 200
        await asyncio.wait_for(left.wait(), 5)


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((), httpx2.RemoteProtocolError),
        ((b"HTTP/1.1 200",), httpx2.RemoteProtocolError),
        ((CHUNKED + b"5\r\nab",), httpx2.RemoteProtocolError),
        ((OK + b"Content-Length: 9\r\n\r\nab",), httpx2.RemoteProtocolError),
        ((b"SSH-2.0-OpenSSH\r\n",), httpx2.RemoteProtocolError),
        ((CHUNKED + b"nonsense\r\n",), httpx2.RemoteProtocolError),
        ((OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",), httpx2.RemoteProtocolError),
        (
            (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",),
            httpx2.RemoteProtocolError,
        ),
    ],
    ids=["nothing", "head", "chunk", "length", "ssh", "chunk-size", "two-lengths", "upgrade"],
)
async def test_broken_response_is_an_error_of_the_transport(parts: tuple[bytes, ...], error: type[Exception]) -> None:
    async with serving(answering(*parts, then=close)) as (url, _), client() as http:
        with pytest.raises(error) as raised:
            await http.post(url, content=b"x")
        assert isinstance(raised.value, httpx2.RequestError) and str(raised.value.request.url) == url


async def test_endless_head_is_refused() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        writer.write(OK + b"X: ")
        for _ in range(10_000):
            writer.write(b"x" * 1_000)
            await writer.drain()

    async with serving(handle) as (url, _), client() as http:
        with pytest.raises(httpx2.RemoteProtocolError, match="too long"):
            await http.get(url)


async def test_sender_of_a_long_body_waits_for_its_reader() -> None:
    sent = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_of(reader)
        writer.write(OK + b"Content-Length: 60000000\r\n\r\n")
        for _ in range(600):
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    async with serving(handle) as (url, _), client() as http, http.stream("GET", url) as response:
        await asyncio.sleep(0.5)
        assert sent < 30_000_000  # what the buffers of both sides and of the system hold
        assert sum([len(piece) async for piece in response.aiter_raw()]) == 60_000_000


async def test_silent_server_is_a_timeout_and_a_missing_one_an_error_of_the_connection() -> None:
    async with serving(answering(CHUNKED + b"1\r\na\r\n", then=wait)) as (url, _), client(0.1) as http:
        with pytest.raises(httpx2.ReadTimeout):
            await http.get(url)
    with pytest.raises(httpx2.ConnectError):
        await client().get(url)
    with pytest.raises(httpx2.UnsupportedProtocol):
        await client().get("ftp://127.0.0.1/")


async def test_cancelled_request_closes_its_connection() -> None:
    left = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        await reader.read()
        left.set()

    async with serving(handle) as (url, _), client() as http:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await http.get(url)
        await asyncio.wait_for(left.wait(), 5)


async def test_header_with_a_line_break_is_not_sent() -> None:
    async with serving(answering(OK + b"Content-Length: 0\r\n\r\n")) as (url, made), client() as http:
        request = http.build_request("GET", url)
        request.headers["X-Key"] = "a\r\nHost: other"
        with pytest.raises(httpx2.LocalProtocolError):
            await http.send(request)
        assert not made
        assert (await http.get(url)).status_code == 200


async def test_tls_checks_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates.make(tmp_path / "certificates")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "certificates" / "server.pem", tmp_path / "certificates" / "server.key")
    async with serving(answering(OK + b"Content-Length: 4\r\n\r\nbody"), tls) as (url, _):
        with pytest.raises(httpx2.ConnectError, match="certificate"):
            await client().get(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificates" / "ca.pem"))
        async with client() as http:
            assert (await http.get(url)).content == b"body"


@pytest.mark.parametrize("silent", [False, True], ids=["refused", "silent"])
async def test_next_address_is_tried_if_one_does_not_answer(monkeypatch: pytest.MonkeyPatch, silent: bool) -> None:
    async with serving(answering(OK + b"Content-Length: 4\r\n\r\nbody")) as (url, _), client() as http:
        loop, port = asyncio.get_running_loop(), httpx2.URL(url).port
        connect = loop.sock_connect

        async def found(*_: object, **__: object) -> list[Address]:
            kinds = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
            return [(*kinds, ("127.0.0.2", port)), (*kinds, ("127.0.0.1", port))]

        async def connected(opened: socket.socket, place: tuple[str, int]) -> None:
            if silent and place[0] == "127.0.0.2":
                await asyncio.sleep(60)
            await connect(opened, place)

        monkeypatch.setattr(loop, "getaddrinfo", found)
        monkeypatch.setattr(loop, "sock_connect", connected)
        async with asyncio.timeout(2):
            assert (await http.get(f"http://model.invalid:{port}/")).content == b"body"


def test_works_on_the_event_loop_of_a_worker() -> None:
    async def ask() -> list[bytes]:
        async with serving(answering(CHUNKED + b"1\r\na\r\n", b"0\r\n\r\n")) as (url, made), client() as http:
            answers = [(await http.post(url, content=b"x")).content for _ in range(2)]
            return [*answers, b"%d" % len(made)]

    assert uvloop.run(ask()) == [b"a", b"a", b"1"]


def test_proxy_of_the_environment_is_left_to_the_usual_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert direct_transport() is not None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    assert direct_transport() is None
