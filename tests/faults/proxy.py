"""A TCP proxy that simulates network faults: its connections can be cut, slowed down or left without an answer."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable

Address = tuple[str, int]
CHUNK = 65_536


class Proxy:
    """Forwards everything unless a fault is set. The target is looked up for each connection."""

    def __init__(self, target: Callable[[], Address], tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self.delay = 0.0  # seconds before each chunk is forwarded, in both directions
        self.refuses = False  # whether new connections are refused

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server
        self._server.close()
        self.resume()
        self.cut()

    @property
    def port(self) -> int:
        assert self._server
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        return len(self._writers)

    def cut(self) -> None:
        """Abort all connections at once, without a proper close."""
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Keep connections open and forward nothing."""
        self._flows.clear()

    def resume(self) -> None:
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target())
        except OSError:
            writer.transport.abort()
            return
        both = {writer, there_writer}
        self._writers |= both
        try:
            await asyncio.gather(self._pump(reader, there_writer), self._pump(there_reader, writer))
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._flows.wait()
                if self.delay:
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
