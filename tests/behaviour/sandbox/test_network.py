"""The network of a command: its own loopback, and one filtered way out."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from activities.egress import Guard
from activities.sandbox import NetworkPolicy, Sandbox, SandboxLimits, SandboxResult, bubblewrap, landlock, seatbelt
from activities.sandbox.network import NetworkUnavailableError
from tests.unit.activities.test_egress import Recording, names

CURL = "curl -sS --max-time 5"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"

pytestmark = pytest.mark.skipif(not bubblewrap.candidates(), reason="bubblewrap alone has a network")


@pytest.fixture(params=bubblewrap.candidates(), ids=lambda back_end: back_end.name)
def networked(request: pytest.FixtureRequest) -> Sandbox:
    found: Sandbox = request.param
    return found


class Upstream(Recording):
    """Records the targets and data of connections, but opens none."""

    def __init__(self, answer: bytes = PAGE) -> None:
        super().__init__()
        self.answer = answer
        self.said = b""

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        self.connected.append((host, port))
        return _Answering(self)


class _Answering(httpcore2.AsyncMockStream):
    def __init__(self, upstream: Upstream) -> None:
        super().__init__([])
        self._upstream = upstream
        self._asked = asyncio.Event()
        self._left = [upstream.answer]

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        await self._asked.wait()
        return self._left.pop() if self._left else b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        self._upstream.said += buffer
        self._asked.set()


async def run(sandbox: Sandbox, workspace: Path, command: str, network: NetworkPolicy | None) -> SandboxResult:
    return await sandbox.run(command, workspace=workspace, network=network, timeout_s=30, limits=SandboxLimits())


def policy(
    backend: httpcore2.AsyncNetworkBackend,
    table: dict[str, list[str]],
    permitted: Callable[[str], bool] = lambda host: True,
    **changes: Any,
) -> NetworkPolicy:
    return NetworkPolicy(Guard(backend=backend, resolve=names(table), **changes), permitted)


class HostPort:
    """A port on the host's loopback, like those of Temporal, PostgreSQL and the API."""

    def __init__(self) -> None:
        self.reached = 0
        self.port = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached += 1
        writer.write(PAGE)
        writer.close()


@pytest.fixture
async def host() -> AsyncIterator[HostPort]:
    found = HostPort()
    server = await asyncio.start_server(found.accept, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


async def test_a_networked_command_does_not_reach_the_loopback_of_the_host(
    networked: Sandbox, workspace: Path, host: HostPort
) -> None:
    real = NetworkPolicy(Guard(ports=None))
    ways = [f"(exec 3<>/dev/tcp/127.0.0.1/{host.port})", f"{CURL} --noproxy '*' http://127.0.0.1:{host.port}/"]
    names_of_loopback = ["127.0.0.1", "localhost", "LOCALHOST.", "127.1", "0x7f000001", "2130706433", "0", "0177.0.0.1"]
    names_of_loopback += ["[::1]", "[::ffff:127.0.0.1]", "127.0.0.2"]
    for name in names_of_loopback:
        # with an empty list, curl uses the proxy even for localhost
        ways.append(f"{CURL} --fail --noproxy '' http://{name}:{host.port}/")
        ways.append(f"{CURL} --fail --noproxy '' --proxytunnel http://{name}:{host.port}/")
    script = "\n".join(f"{way} >/dev/null 2>&1 && echo REACHED {at}" for at, way in enumerate(ways))
    result = await run(networked, workspace, f"{script}\necho FINISHED", real)
    assert "FINISHED" in result.output
    assert [ways[int(line.split()[1])] for line in result.output.splitlines() if line.startswith("REACHED")] == []
    assert host.reached == 0


FORBIDDEN = ["169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "192.168.1.1", "[::1]", "100.100.100.200", "inside.test"]
FORBIDDEN += ["mixed.test", "unknown.test"]


async def test_the_proxy_opens_no_connection_to_a_private_address(networked: Sandbox, workspace: Path) -> None:
    table = {name.strip("[]"): [name.strip("[]")] for name in FORBIDDEN[:6]}
    table |= {"inside.test": ["192.168.0.1"], "mixed.test": ["93.184.216.34", "127.0.0.1"]}
    upstream = Upstream()
    script = "\n".join(
        f"{CURL} --noproxy '' -o /dev/null -w '%{{http_code}} %{{http_connect}}\\n' {way} http://{name}/ 2>/dev/null"
        for name in FORBIDDEN
        for way in ("", "--proxytunnel")
    )
    result = await run(networked, workspace, script, policy(upstream, table))
    assert upstream.connected == []
    codes = [line for line in result.output.splitlines() if line[:1].isdigit()]
    assert codes == ["403 000", "000 403"] * len(FORBIDDEN)
    assert "[network: 169.254.169.254 is refused: its address is not public." in result.output


async def test_a_public_host_is_reached_at_the_address_that_was_checked(networked: Sandbox, workspace: Path) -> None:
    upstream = Upstream()
    command = f"{CURL} http://pypi.test/simple/?q=1 -H 'X-Mine: 1' -H 'Proxy-Authorization: secret'"
    result = await run(networked, workspace, command, policy(upstream, {"pypi.test": ["93.184.216.34"]}))
    assert result.output == "hello"
    assert upstream.connected == [("93.184.216.34", 80)]
    head = upstream.said.decode()
    assert head.startswith("GET /simple/?q=1 HTTP/1.1\r\nHost: pypi.test\r\n")
    assert "X-Mine: 1" in head and "Connection: close" in head
    assert "secret" not in head and "proxy" not in head.lower()


async def test_a_tunnel_carries_bytes_as_they_are(networked: Sandbox, workspace: Path) -> None:
    upstream = Upstream(b"raw answer")
    say = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT a.test:443 HTTP/1.1\\r\\n\\r\\nraw question' >&3; cat <&3"
    result = await run(networked, workspace, say, policy(upstream, {"a.test": ["1.1.1.1"]}))
    assert result.output == "HTTP/1.1 200 Connection established\r\n\r\nraw answer"
    assert (upstream.connected, upstream.said) == ([("1.1.1.1", 443)], b"raw question")


async def test_only_permitted_hosts_and_ports_are_reached(networked: Sandbox, workspace: Path) -> None:
    upstream = Upstream()
    table = {f"{name}.test": ["1.1.1.1"] for name in "ab"}
    command = "\n".join(f"{CURL} http://{to}/" for to in ("b.test", "a.test:22", "a.test:8080", "a.test"))
    allowed = policy(upstream, table, lambda host: host == "a.test", ports=frozenset({80, 8080}))
    result = await run(networked, workspace, command, allowed)
    assert upstream.connected == [("1.1.1.1", 8080), ("1.1.1.1", 80)]
    assert "b.test is not among the hosts that this agent and this task may reach" in result.output
    assert "a.test is refused on port 22; allowed: 80, 8080" in result.output


MALFORMED = [
    "GET / HTTP/1.1",
    "GET https://a.test/ HTTP/1.1",
    "GET ftp://a.test/ HTTP/1.1",
    "CONNECT a.test HTTP/1.1",
    "CONNECT user@a.test:443 HTTP/1.1",
    "CONNECT a.test:443/x:1 HTTP/1.1",
    "nonsense",
    "GET http://a.test/ HTTP/1.1\\r\\n folded: x",
    "GET http://u:p@a.test/ HTTP/1.1",
    f"GET http://a.test/ HTTP/1.1\\r\\nX: {'x' * 40_000}",
]


async def test_malformed_requests_get_an_answer_and_no_connection(networked: Sandbox, workspace: Path) -> None:
    upstream = Upstream()
    say = "(exec 3<>/dev/tcp/127.0.0.1/3128; printf '{}\\r\\n\\r\\n' >&3; head -n 1 <&3)"
    script = "\n".join(say.format(head) for head in MALFORMED)
    result = await run(networked, workspace, script, policy(upstream, {"a.test": ["1.1.1.1"]}))
    assert result.output.count("HTTP/1.1 403 Forbidden") == len(MALFORMED), result.output
    assert upstream.connected == []


async def test_each_command_has_a_network_of_its_own(networked: Sandbox, workspace: Path) -> None:
    one, other = Upstream(), Upstream(PAGE.replace(b"hello", b"other"))
    table = {"a.test": ["1.1.1.1"]}
    results = await asyncio.gather(
        run(networked, workspace, f"{CURL} http://a.test/", policy(one, table)),
        run(networked, workspace, f"{CURL} http://a.test/", policy(other, table, lambda host: False)),
        run(networked, workspace, f"{CURL} http://a.test/", None),
    )
    assert results[0].output == "hello"
    assert "not among the hosts" in results[1].output and other.connected == []
    assert results[2].exit_code == 6  # no name server can be reached


async def test_connections_end_with_their_command(networked: Sandbox, workspace: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    silent = Upstream()
    silent.answer = b""
    say = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT a.test:80 HTTP/1.1\\r\\n\\r\\n' >&3"
    command = f"for i in $(seq 100); do ({say}; sleep 60) & done; sleep 1"
    result = await run(networked, workspace, command, policy(silent, {"a.test": ["1.1.1.1"]}))
    assert "more than 64 connections at a time" in result.output
    await asyncio.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize("back_end", [landlock.Landlock(), seatbelt.Seatbelt("sandbox-exec")], ids=lambda one: one.name)
async def test_back_ends_without_a_guarded_way_out_refuse(back_end: Sandbox, workspace: Path) -> None:
    result = await run(back_end, workspace, "touch ran", policy(Upstream(), {}))
    assert result.refusal.startswith("Nothing was run: ") and "guarded way out" in result.refusal
    assert os.listdir(workspace) == []


async def test_command_is_not_run_where_the_network_cannot_be_opened(
    networked: Sandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unavailable(pid: int, uid: int | None) -> socket.socket:
        raise NetworkUnavailableError("Operation not permitted")

    monkeypatch.setattr(bubblewrap, "listening_socket", unavailable)
    result = await run(networked, workspace, "touch ran", policy(Upstream(), {}))
    assert result.refusal == "Nothing was run: Operation not permitted."
    assert os.listdir(workspace) == []
