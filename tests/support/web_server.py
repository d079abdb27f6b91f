"""A web server in the loop of a test, whose answers the test makes byte by byte."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Answer = Callable[[str, bytes], Awaitable[bytes]]  # of the head and the body of a request


@asynccontextmanager
async def web_server(answer: Answer, port: int = 0) -> AsyncIterator[str]:
    """The server's address: host and port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = re.search(r"^content-length: (\d+)", head, re.IGNORECASE | re.MULTILINE)
            writer.write(await answer(head, await reader.readexactly(int(length[1])) if length else b""))
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def response(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body
