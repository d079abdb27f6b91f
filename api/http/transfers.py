"""Transfers of whole files, and texts to be computed: few at once for each tenant, and none takes longer than it may.

A client that sends slowly, or does not read what it asked for, would otherwise hold the bytes of a file in memory for
as long as it likes, as often as it likes.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping

from fastapi import Request
from fastapi.responses import StreamingResponse

AT_ONCE = 8  # for each tenant, in this process
SECONDS = 120.0
PIECE = 65_536


class Transfers:
    def __init__(self) -> None:
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))

    def turn(self, tenant: str) -> asyncio.Semaphore:
        return self._turns[tenant]


async def take_turn(request: Request) -> AsyncIterator[None]:
    """A dependency: wait for a turn, and keep it until the answer was sent."""
    transfers: Transfers = request.app.state.services.transfers
    async with transfers.turn(request.state.caller.tenant), asyncio.timeout(SECONDS):
        yield


def send_file(content: bytes, headers: Mapping[str, str]) -> StreamingResponse:
    """The file in pieces: before each the server waits until the client has read most of the last one. A whole body
    would be in the buffer of the connection at once, where no time limit reaches it."""

    async def pieces() -> AsyncIterator[bytes]:
        for place in range(0, len(content), PIECE):
            yield content[place : place + PIECE]

    return StreamingResponse(pieces(), headers={**headers, "Content-Length": str(len(content))})
