"""A reverse proxy in front of the API: serves it under a prefix, which it strips, and reports https as the scheme."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

PREFIX = "/errand"
_LINE = re.compile(rb"(\w+) (\S+) HTTP/1\.1\r\n")


@asynccontextmanager
async def prefix_proxy(target: str, strays: list[str]) -> AsyncIterator[str]:
    """The proxy's address with the prefix; a request outside the prefix is added to `strays` and gets 404."""
    host, port = urlsplit(target).hostname, urlsplit(target).port
    open_now: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path = (part.decode() for part in _LINE.match(head).groups())  # type: ignore[union-attr]
            if not path.startswith(f"{PREFIX}/"):
                strays.append(path)
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            kept = [line for line in head.split(b"\r\n")[1:-2] if not line.lower().startswith(b"connection:")]
            kept += [b"X-Forwarded-For: 203.0.113.7", b"X-Forwarded-Proto: https", b"Connection: close"]
            line = f"{method} {path.removeprefix(PREFIX)} HTTP/1.1".encode()
            answer, request = await asyncio.open_connection(host, port)
            open_now.add(request)
            request.write(b"\r\n".join([line, *kept, b"", b""]))
            sending = asyncio.create_task(_pump(reader, request))
            await _pump(answer, writer)
            sending.cancel()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the browser or the server has disconnected
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PREFIX}/"
    finally:
        server.close()
        for writer in open_now:
            writer.close()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while piece := await source.read(65_536):
        target.write(piece)
        await target.drain()
