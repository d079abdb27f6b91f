"""POST /mcp: one JSON-RPC message. Each method checks its own rights where it is answered."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from api.faces.mcp.host import McpHost
from api.http.auth import Anyone
from api.http.body import read_json
from api.http.problems import Unreadable
from domain.errors import Invalid

# not in our OpenAPI document: the protocol has its own schema
router = APIRouter(tags=["mcp"], include_in_schema=False)

PARSE_ERROR = -32700


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

        async def replayed() -> Message:
            # afterwards the real channel, because the library learns there that the client has disconnected
            return messages.pop() if messages else await receive()

        await self._host.handle(scope, replayed, send)
