"""The routes: the part of the Anthropic API that an agent needs, and the log of requests."""

import asyncio
import json
import random
import socket
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from offline.checks import CONTEXT_WINDOW, check, check_length
from offline.faults import MIDSTREAM, FaultCounter, Faults
from offline.markers import MarkerError
from offline.reply import Reply
from offline.request_log import Entry, RequestLog
from offline.scripts import answer
from offline.stream import MessageStream, client_left
from offline.transcript import Transcript
from offline.usage import PromptCache, count_input
from offline.wire import ApiError, error_body, message

MODELS = ("offline", "claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5")


class OfflineModel:
    """Answers from the request alone; only faults and the prompt cache have state."""

    def __init__(self) -> None:
        self.log = RequestLog()
        self._faults = FaultCounter()
        self._cache = PromptCache()

    async def messages(self, request: Request) -> Any:
        entry = Entry(id=_request_id(), body=await request.body())
        try:
            return await self._answer(request, entry)
        except ApiError as error:
            return _error(error, entry)
        except MarkerError as error:
            return _error(ApiError(400, str(error)), entry)

    async def _answer(self, request: Request, entry: Entry) -> Any:
        _authorize(request)
        body = _json(entry.body)
        self.log.add(entry)
        transcript = Transcript.of(body, check(body))
        entry.model, entry.turn = body["model"], transcript.assistant_messages + 1
        faults = self._faults.take(transcript)
        if faults.error:
            raise faults.error
        usage = self._cache.measure(body)
        check_length(usage.total, CONTEXT_WINDOW if faults.window is None else faults.window)
        reply = answer(transcript)
        whole = message(reply, body, usage, entry.body)
        if body.get("stream"):
            return MessageStream(whole, faults, reply.delay, entry)
        return await _whole(whole, faults, reply, entry)

    async def count_tokens(self, request: Request) -> Response:
        entry = Entry(id=_request_id(), body=await request.body())
        try:
            _authorize(request)
            body = _json(entry.body)
            check({"max_tokens": 1, **body, "thinking": None} if isinstance(body, dict) else body)
            return JSONResponse({"input_tokens": count_input(body)}, headers={"request-id": entry.id})
        except ApiError as error:
            return _error(error, entry)

    async def models(self, request: Request) -> Response:
        data = [_model(name) for name in MODELS]
        return JSONResponse({"data": data, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]})

    async def one_model(self, request: Request) -> Response:
        """Every name is a model, except those that begin with `no-such`."""
        entry = Entry(id=_request_id(), body=b"")
        name = request.path_params["name"]
        try:
            _authorize(request)
            if name.startswith("no-such"):
                raise ApiError(404, f"model: {name}")
        except ApiError as error:
            return _error(error, entry)
        return JSONResponse(_model(name))

    async def requests(self, request: Request) -> Response:
        if request.method == "DELETE":
            self.log.clear()
            return Response(status_code=204)
        return JSONResponse({"requests": self.log.find(request.query_params.get("contains", ""))})


def _model(name: str) -> dict[str, str]:
    created = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    return {"id": name, "type": "model", "display_name": name, "created_at": created, "lifecycle": "active"}


def create_app() -> Starlette:
    model = OfflineModel()
    return Starlette(
        routes=[
            Route("/v1/messages", model.messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", model.count_tokens, methods=["POST"]),
            Route("/v1/models", model.models, methods=["GET"]),
            Route("/v1/models/{name}", model.one_model, methods=["GET"]),
            Route("/_requests", model.requests, methods=["GET", "DELETE"]),
            Route("/healthz", _healthz, methods=["GET"]),
        ]
    )


def listen(host: str, port: int) -> socket.socket:
    # asyncio turns off Nagle's delay (40 ms per request here) only for sockets that name their protocol
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1024)  # a client may connect before the server runs
    return listener


async def _healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _request_id() -> str:
    return f"req_{random.getrandbits(128):032x}"  # uuid4 would need a system call


def _authorize(request: Request) -> None:
    header = request.headers.get("authorization", "")
    key = header.removeprefix("Bearer ").strip() or request.headers.get("x-api-key", "")
    if not key:
        raise ApiError(401, "x-api-key header is required")
    if key == "invalid":
        raise ApiError(401, "invalid x-api-key")


def _json(raw: bytes) -> Any:
    with suppress(ValueError):
        return from_json(raw)
    try:
        return json.loads(raw)  # slower, but reads lone surrogates, other encodings than UTF-8 and deeper nesting
    except ValueError:
        raise ApiError(400, "The request body is not valid JSON") from None


def _error(error: ApiError, entry: Entry) -> Response:
    entry.status, entry.outcome = error.status, "error"
    headers = {"request-id": entry.id, **error.headers}
    return JSONResponse(error_body(error.type, error.message, entry.id), status_code=error.status, headers=headers)


async def _whole(whole: dict[str, Any], faults: Faults, reply: Reply, entry: Entry) -> Any:
    """Answer without a stream, with the faults that such a response can have."""
    await asyncio.sleep(faults.delay or reply.delay)
    if faults.stream in MIDSTREAM:
        type, text = MIDSTREAM[faults.stream]
        raise ApiError({"overloaded_error": 529, "api_error": 500}.get(type, 400), text)
    if faults.stream in ("cut", "drop", "hang"):
        return _Unanswered(entry, hang=faults.stream == "hang")
    entry.outcome = "answered"
    return JSONResponse(whole, headers={"request-id": entry.id})


class _Unanswered:
    """Closes the connection before the response is complete: immediately, or when the client disconnects."""

    def __init__(self, entry: Entry, hang: bool) -> None:
        self._entry = entry
        self._hang = hang

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hang:
            await client_left(receive)
            self._entry.outcome = "disconnected"
            return
        self._entry.outcome = "dropped"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
