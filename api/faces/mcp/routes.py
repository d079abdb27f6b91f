"""POST /mcp: one JSON-RPC message. Each method checks its own rights where it is answered.

The protocol's library is loaded at the first request, so that neither the start nor other requests wait for it.
"""

import asyncio
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.auth import Anyone
from api.http.body import read_json
from api.http.problems import Unreadable
from domain.errors import Invalid

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

# not in our OpenAPI document: the protocol has its own schema
router = APIRouter(tags=["mcp"], include_in_schema=False)
PARSE_ERROR = -32700


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

    from api.faces.mcp.server import build_server

    # Stateless: any process answers any request. It streams only if a request is slow or reports progress.
    return StreamableHTTPSessionManager(app=build_server(), stateless=True)


@router.post("/mcp")
async def post_message(request: Request, call: Anyone) -> Response:
    try:
        _, raw = await read_json(request, call.settings.max_body_bytes)
    except (Unreadable, Invalid) as error:  # as strict as all routes, but in the protocol's form
        if error.status not in (400, 422):
            raise
        body = {"jsonrpc": "2.0", "id": None, "error": {"code": PARSE_ERROR, "message": error.detail}}
        return JSONResponse(body, 400)
    return _Delegated(call.services.mcp, raw)


class _Delegated(Response):
    """The library writes the response; the body was read before, within our limits."""

    def __init__(self, host: McpHost, body: bytes) -> None:
        super().__init__()
        self._host, self._read = host, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        messages: list[Message] = [{"type": "http.request", "body": self._read, "more_body": False}]

        async def replay_body() -> Message:
            # afterwards the real channel, because the library learns there that the client has disconnected
            return messages.pop() if messages else await receive()

        await self._host.handle(scope, replay_body, send)
