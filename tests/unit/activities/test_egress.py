"""Guarded outbound requests: refusals before any socket is opened, and fetches from a real server."""

import asyncio
import gzip
import socket
import tracemalloc
from collections.abc import AsyncIterator, Iterable
from types import SimpleNamespace
from typing import Any, cast

import httpcore2
import pytest

from activities.egress import Fetcher, FetchError
from activities.tools.builtin import fetch_url
from activities.tools.tool import ToolContext


class Recording(httpcore2.AsyncNetworkBackend):
    """Records every address to which a connection would be made, and opens none."""

    def __init__(self, answers: list[bytes] | None = None) -> None:
        self.connected: list[tuple[str, int]] = []
        self._answers = answers or []

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        self.connected.append((host, port))
        if not self._answers:
            raise httpcore2.ConnectError("recorded")
        return httpcore2.AsyncMockStream([self._answers.pop(0)])


def names(table: dict[str, list[str]]) -> Any:
    async def resolve(host: str, port: int) -> list[str]:
        if host not in table:
            raise socket.gaierror("unknown name")
        return table[host]

    return resolve


# the system's resolver is used, because its reading of these is tested; none is a name that needs a server
LITERALS = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://0177.0.0.1/",
    "http://0/",
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "http://192.0.0.192/",
    "http://100.100.100.200/",
    "http://10.0.0.1:8080/",
    "http://①②⑦.0.0.1/",
    "https://127.0.0.1:8443/",
]


@pytest.mark.parametrize("url", LITERALS)
async def test_private_literals_are_refused_before_connecting(url: str) -> None:
    backend = Recording()
    with pytest.raises(FetchError):
        await Fetcher(backend=backend).get(url)
    assert backend.connected == []


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "unix:///run/docker.sock",
        "http://",
        "http:///etc/passwd",
        "//example.org/",
        "example.org",
        "http://user:secret@example.org/",
        "http://user@example.org/",
        "http://example.org@127.0.0.1/",
        "http://[::1/",
        "http://exa mple.org:99999/",
        "",
        "javascript:alert(1)",
    ],
)
async def test_urls_that_are_no_plain_web_address_are_refused(url: str) -> None:
    backend = Recording()
    with pytest.raises(FetchError):
        await Fetcher(backend=backend, resolve=names({"example.org": ["93.184.216.34"]})).get(url)
    assert backend.connected == []


@pytest.mark.parametrize("addresses", [["10.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:10.0.0.1"], []])
async def test_every_address_of_a_name_must_be_public(addresses: list[str]) -> None:
    backend = Recording()
    with pytest.raises(FetchError):
        await Fetcher(backend=backend, resolve=names({"rebind.test": addresses})).get("http://rebind.test/")
    assert backend.connected == []


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """A name is resolved only once, since it could resolve to another address the second time."""
    answers = [["93.184.216.34"], ["127.0.0.1"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    backend = Recording()
    with pytest.raises(FetchError):
        await Fetcher(backend=backend, resolve=resolve).get("http://rebind.test/")
    assert backend.connected == [("93.184.216.34", 80)]
    assert len(answers) == 1


@pytest.mark.parametrize("url", ["http://a.test:22/", "https://a.test:6443/", "http://a.test:8080/"])
async def test_public_hosts_are_reached_on_the_ports_of_the_web_unless_others_are_listed(url: str) -> None:
    backend = Recording()
    table = names({"a.test": ["1.1.1.1"]})
    with pytest.raises(FetchError, match="allowed: 80, 443"):
        await Fetcher(backend=backend, resolve=table).get(url)
    assert backend.connected == []
    for fetcher in (
        Fetcher(backend=backend, resolve=table, ports=frozenset({22, 6443, 8080})),
        Fetcher(backend=backend, resolve=table, ports=None),
        Fetcher(["a.test"], backend=backend, resolve=table),
    ):
        with pytest.raises(FetchError, match="did not answer"):
            await fetcher.get(url)
    assert len(backend.connected) == 3


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1/",
        "http://inside.test/",
        "//169.254.169.254/",
        "file:///etc/passwd",
        "http://u:p@outside.test/",
        "http://[::1]:7233/",
        "https://[",
    ],
)
async def test_a_redirect_is_checked_like_the_first_address(place: str) -> None:
    redirect = f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
    backend = Recording([redirect])
    table = {"outside.test": ["1.1.1.1"], "inside.test": ["192.168.0.1"]}
    table |= {name: [name] for name in ("127.0.0.1", "169.254.169.254", "::1")}
    with pytest.raises(FetchError):
        await Fetcher(backend=backend, resolve=names(table)).get("http://outside.test/")
    assert backend.connected == [("1.1.1.1", 80)]


async def test_a_redirect_leads_only_to_what_the_rules_allow() -> None:
    redirects = [
        f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
        for place in ("/next", "http://b.test/", "http://c.test/")
    ]
    asked: list[str] = []

    async def permits(host: str) -> bool:
        asked.append(host)
        return host == "b.test"

    backend = Recording(redirects)
    table = {f"{name}.test": [f"1.1.1.{place}"] for place, name in enumerate("abc", start=1)}
    fetcher = Fetcher(backend=backend, resolve=names(table))
    context = cast(ToolContext, SimpleNamespace(fetcher=fetcher, permits=permits))
    result = await fetch_url.run(fetch_url.Input(url="http://a.test/"), context)
    assert result.failed and "redirects to http://c.test/, which the rules of this task do not allow" in result.text
    assert asked == ["b.test", "c.test"]
    assert [address for address, _ in backend.connected] == ["1.1.1.1", "1.1.1.1", "1.1.1.2"]


async def test_endless_redirects_are_refused() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n"
    backend = Recording([redirect] * 20)
    with pytest.raises(FetchError, match="More than 5 redirects"):
        await Fetcher(backend=backend, resolve=names({"loop.test": ["1.1.1.1"]})).get("http://loop.test/")
    assert len(backend.connected) == 6


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    backend = Recording()
    with pytest.raises(FetchError):
        await Fetcher(backend=backend, resolve=names({"a.test": ["1.1.1.1"]})).get("http://a.test/")
    assert backend.connected == [("1.1.1.1", 80)]


class Server:
    """A real web server on loopback with the responses that a test sets."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.allowed = [f"127.0.0.1:{port}"]
        self.answers: dict[str, list[bytes]] = {}
        self.requests: list[bytes] = []

    def say(self, path: str, body: bytes, headers: Iterable[str] = (), status: str = "200 OK") -> None:
        head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers])
        self.answers[path] = [head.encode() + b"\r\n\r\n" + body]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = Server(listener.getsockname()[1])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readuntil(b"\r\n\r\n")
            found.requests.append(request)
            for part in found.answers[request.split()[1].decode()]:
                writer.write(part)
                if part == b"":
                    await asyncio.sleep(5)
            writer.close()

        web = await asyncio.start_server(serve, sock=listener)
        yield found
        web.close()


async def test_an_allowed_private_host_is_fetched(server: Server) -> None:
    server.say("/final", b"hello")
    server.say("/", b"", ["Location: /final", "Set-Cookie: a=b"], "302 Found")
    answer = await Fetcher(server.allowed).get(server.url + "/")
    assert (answer.url, answer.status, answer.body) == (f"{server.url}/final", 200, b"hello")
    assert b"cookie" not in server.requests[1].lower()
    assert (await Fetcher(["127.0.0.1"]).get(server.url + "/final")).body == b"hello"
    with pytest.raises(FetchError, match="not public"):
        await Fetcher([f"127.0.0.1:{server.port + 1}", "localhost"]).get(server.url + "/")


async def test_request_with_a_body_follows_no_redirect(server: Server) -> None:
    server.say("/hook", b"", ["Location: /other"], "307 Temporary Redirect")
    answer = await Fetcher(server.allowed).send("POST", server.url + "/hook", {"x-id": "1"}, b"{}")
    assert answer.status == 307
    assert server.requests[0].startswith(b"POST /hook") and b"x-id: 1" in server.requests[0].lower()


async def test_bodies_are_bounded_and_unpacked_within_the_bound(server: Server) -> None:
    server.say("/large", b"x" * 5_000)
    server.say("/bomb", gzip.compress(b"x" * 50_000_000), ["Content-Encoding: gzip"])
    server.say("/packed", gzip.compress(b"hello"), ["Content-Encoding: gzip"])
    server.say("/odd", b"hello", ["Content-Encoding: br"])
    server.say("/broken", b"hello", ["Content-Encoding: gzip"])
    fetcher = Fetcher(server.allowed, max_bytes=1_000)
    for path in ("/large", "/bomb"):
        tracemalloc.start()
        answer = await fetcher.get(server.url + path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (answer.body, answer.truncated) == (b"x" * 1_000, True)
        assert peak < 10_000_000
    assert (await fetcher.get(server.url + "/packed")).body == b"hello"
    for path in ("/odd", "/broken"):
        with pytest.raises(FetchError, match="packed"):
            await fetcher.get(server.url + path)


async def test_the_whole_fetch_is_bounded_in_time(server: Server) -> None:
    server.answers["/"] = [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b""]
    with pytest.raises(FetchError, match="No complete answer within"):
        await Fetcher(server.allowed, timeout_s=0.3).get(server.url + "/")
