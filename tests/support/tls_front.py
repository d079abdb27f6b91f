"""A TLS endpoint in front of a server without TLS: every client needs a certificate of our authority."""

import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from tests.faults.proxy import Proxy


@contextlib.asynccontextmanager
async def tls_front(address: str, certificates: Path) -> AsyncIterator[str]:
    """The address of the TLS endpoint; deploy/certificates.py makes the `certificates`."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.pem")
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    async with Proxy(lambda: (host, int(port)), context) as proxy:
        yield f"127.0.0.1:{proxy.port}"
