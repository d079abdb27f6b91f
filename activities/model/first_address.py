"""A socket that is connected to one of the addresses of a host."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

NEXT_SECONDS = 0.25  # until the next address is tried as well, if one does not answer

Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]  # as getaddrinfo returns it


async def opened_first(found: Sequence[Address]) -> socket.socket:
    """A socket that is connected to the first address that answers; the next one is tried a moment after each."""
    rest, opening, failure = list(found), set[asyncio.Task[socket.socket]](), OSError("the host has no address")
    try:
        while rest or opening:
            if rest:
                opening.add(asyncio.create_task(_opened(rest.pop(0))))
            done, _ = await asyncio.wait(
                opening, timeout=NEXT_SECONDS if rest else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                opening.remove(task)
                try:
                    return task.result()
                except OSError as error:
                    failure = error
        raise failure
    finally:
        for task in opening:
            if not task.cancel() and not task.exception():  # it connected in the same moment
                task.result().close()


async def _opened(address: Address) -> socket.socket:
    family, kind, protocol, _, place = address
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        await asyncio.get_running_loop().sock_connect(opened, place)
    except BaseException:
        opened.close()
        raise
    return opened
