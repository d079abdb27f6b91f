"""The gateway of a sandbox: requests to the host of a credential get it, over TLS, and nobody else does."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from activities.egress import Guard
from activities.sandbox import NetworkPolicy, SandboxLimits, bubblewrap
from deploy import certificates
from domain.credentials import Credential, CredentialRules

pytestmark = pytest.mark.skipif(not bubblewrap.candidates(), reason="bubblewrap alone has a network")
SECRET = "token-0123456789"


@dataclass
class Host:
    """A server with TLS that keeps what it is asked."""

    authority: Path
    port: int = 0
    asked: list[bytes] = field(default_factory=list)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    await asyncio.to_thread(certificates.make, tmp_path / "tls")
    found = Host(tmp_path / "tls/ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls/server.pem", tmp_path / "tls/server.key")
    server = await asyncio.start_server(found.accept, "127.0.0.1", 0, ssl=context)
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()


async def ask(host: Host, workspace: Path, command: str, *, trusted: bool = True) -> str:
    tls = ssl.create_default_context(cafile=host.authority if trusted else None)
    guard = Guard(["localhost"], ports=None, tls=tls)
    rules = CredentialRules(hosts=[f"localhost:{host.port}"])
    policy = NetworkPolicy(guard, credentials=(Credential(name="c", rules=rules, secret=SECRET),))
    command = command.replace("HOST", f"https/localhost:{host.port}")
    result = await bubblewrap.candidates()[0].run(
        command, workspace=workspace, network=policy, timeout_s=30, limits=SandboxLimits()
    )
    return result.output


async def test_a_request_gets_the_credential_over_tls(host: Host, workspace: Path) -> None:
    said = await ask(
        host,
        workspace,
        "curl -s -H 'Authorization: Bearer mine' -H 'authorization : x' -H 'X-HTTP-Method-Override: POST' "
        "$ERRAND_GATEWAY/HOST/user?a=b%20c\n"
        "curl -s --noproxy '' $ERRAND_GATEWAY/HOST/through-the-proxy\n"  # programs that ignore $no_proxy
        "git ls-remote https://localhost:${ERRAND_GATEWAY:+" + str(host.port) + "}/shop.git",
    )
    assert said.startswith("hellohello")
    first, second, third, *_ = (one.decode() for one in host.asked)
    assert first.startswith(f"GET /user?a=b%20c HTTP/1.1\r\nHost: localhost:{host.port}\r\n")
    for one in (first, second):
        assert one.lower().count("authorization") == 1 and f"Authorization: Bearer {SECRET}\r\n" in one
    assert "override" not in first.lower()  # a credential that may read would write
    assert third.startswith("GET /shop.git/info/refs?service=git-upload-pack ") and "Authorization: Basic " in third


async def test_a_host_whose_certificate_is_not_its_own_gets_nothing(host: Host, workspace: Path) -> None:
    said = await ask(host, workspace, "curl -s $ERRAND_GATEWAY/HOST/user", trusted=False)
    assert "no TLS with a valid certificate" in said and host.asked == []


@pytest.mark.parametrize(
    "place",
    [
        "https/127.0.0.1:PORT/x",
        "http/localhost:PORT/x",
        "https/localhost/x",
        "https/localhost:99999/x",
        "https/localhost:PORT@example.org/x",
        "https/user@localhost:PORT/x",
        "https/localhost:PORT",
        "ftp/localhost:PORT/x",
        "",
    ],
)
async def test_nothing_else_gets_it(host: Host, workspace: Path, place: str) -> None:
    said = await ask(
        host,
        workspace,
        f"curl -s --path-as-is '$ERRAND_GATEWAY/{place}'".replace("'", '"').replace("PORT", str(host.port)),
    )
    assert "Refused by the network" in said and host.asked == []
