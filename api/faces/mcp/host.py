"""Loads the protocol's library at the first MCP request, so that neither the start nor other requests wait for it."""

import asyncio
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class McpHost:
    """One per process. One task, `run`, must both enter and leave the library's manager."""

    def __init__(self) -> None:
        self._wanted = asyncio.Event()
        self._app: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        await self._wanted.wait()
        try:
            # in a thread: the import takes long enough to delay other requests
            manager = await asyncio.to_thread(_manager)
        except Exception as error:
            # the requests that wait get the error; without it they would wait until their clients give up
            self._app.set_exception(error)
            raise
        async with manager.run():
            self._app.set_result(manager.handle_request)
            await asyncio.Event().wait()  # until the process stops

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._wanted.set()
        # all requests wait for the same future: a client that disconnects must not cancel it for the others
        await (await asyncio.shield(self._app))(scope, receive, send)


def _manager() -> "StreamableHTTPSessionManager":
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from api.faces.mcp.server import build

    # Stateless: any process answers any request. It streams only if a request is slow or reports progress.
    return StreamableHTTPSessionManager(app=build(), stateless=True)
