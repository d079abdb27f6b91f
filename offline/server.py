"""The routes: the parts of the Anthropic API and of OpenAI's that an agent needs, and the log of requests."""

import asyncio
import json
import random
import socket
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from offline import completions, library, wire
from offline.checks import CONTEXT_WINDOW, check
from offline.faults import MIDSTREAM, FaultCounter, Faults
from offline.markers import MarkerError
from offline.reply import Reply
from offline.scripts import answer
from offline.transcript import Transcript
from offline.usage import PromptCache
from offline.wire import ApiError, Event, message

MODELS = ("offline", "claude-opus-5-5", "claude-sonnet-5-5", "claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5")
MAX_REQUESTS = 2_000
MAX_BYTES = 67_108_864


@dataclass
class Entry:
    id: str
    body: bytes
    model: str = ""
    status: int = 200
    outcome: str = "open"  # then answered, error, cut, dropped or disconnected

    def describe(self) -> dict[str, Any]:
        return {**asdict(self), "body": json.loads(self.body)}


class RequestLog:
    """The latest requests and their outcomes, for assertions in tests."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.body)
        while len(self._entries) > MAX_REQUESTS or (self._bytes > MAX_BYTES and len(self._entries) > 1):
            self._bytes -= len(self._entries.popleft().body)

    def find(self, contains: str) -> list[dict[str, Any]]:
        """The requests that contain a text, oldest first, however JSON has escaped it."""
        spellings = {json.dumps(contains, ensure_ascii=ascii)[1:-1].encode() for ascii in (True, False)}
        return [entry.describe() for entry in self._entries if any(text in entry.body for text in spellings)]


class OfflineModel:
    """Answers from the request alone; only faults and the prompt cache have state."""

    def __init__(self) -> None:
        self.log = RequestLog()
        self._faults = FaultCounter()
        self._cache = PromptCache()

    def route(self, form: "Form", answer: "Answer") -> Callable[[Request], Awaitable[Any]]:
        """A route for requests with a key. Its errors are in the vendor's form."""

        async def handle(request: Request) -> Any:
            entry = Entry(id=f"req_{random.getrandbits(128):032x}", body=await request.body())  # uuid4: a system call
            try:
                _authorize(request)
                return await answer(request, entry, form)
            except (ApiError, MarkerError) as problem:
                error = problem if isinstance(problem, ApiError) else ApiError(400, str(problem))
                entry.status, entry.outcome = error.status, "error"
                headers = {"request-id": entry.id, **error.headers}
                return JSONResponse(form.error_body(error, entry.id), status_code=error.status, headers=headers)

        return handle

    async def reply(self, request: Request, entry: Entry, form: "Form") -> Any:
        body = form.read(_json(entry.body))
        self.log.add(entry)
        transcript = Transcript.of(body, check(body))
        entry.model = body["model"]
        faults = self._faults.take(transcript)
        if faults.error:
            raise faults.error
        usage = self._cache.measure(body)
        window = CONTEXT_WINDOW if faults.window is None else faults.window
        if usage.total > window:
            raise ApiError(400, f"prompt is too long: {usage.total} tokens > {window} maximum")
        if library.is_search(body):
            whole = message(Reply(text=transcript.request), body, usage, entry.body)
            whole["content"] = library.answer_search(transcript.request, str(request.base_url))
            return _whole(form.whole(whole), entry)
        reply = answer(transcript)
        whole = message(reply, body, usage, entry.body)
        if body.get("stream"):
            pieces = stream(whole, faults, reply.delay, entry, form)
            return StreamingResponse(pieces, media_type="text/event-stream", headers={"request-id": entry.id})
        await asyncio.sleep(faults.delay or reply.delay)
        return _whole(form.whole(whole), entry)

    async def models(self, request: Request, entry: Entry, form: "Form") -> Response:
        data = [_model(name) for name in MODELS]
        return JSONResponse({"data": data, "has_more": False, "first_id": MODELS[0], "last_id": MODELS[-1]})

    async def one_model(self, request: Request, entry: Entry, form: "Form") -> Response:
        """Every name is a model, except those that begin with `no-such`."""
        name = request.path_params["name"]
        if name.startswith("no-such"):
            raise ApiError(404, f"model: {name}")
        return JSONResponse(_model(name))

    async def requests(self, request: Request, entry: Entry, form: "Form") -> Response:
        """Only with a key, which agents that may read the pages here do not have."""
        return JSONResponse({"requests": self.log.find(request.query_params.get("contains", ""))})


def _model(name: str) -> dict[str, str]:
    created = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    return {"id": name, "type": "model", "display_name": name, "created_at": created, "lifecycle": "active"}


def create_app() -> Starlette:
    model = OfflineModel()
    return Starlette(
        routes=[
            Route("/v1/messages", model.route(MESSAGES, model.reply), methods=["POST"]),
            Route("/v1/chat/completions", model.route(COMPLETIONS, model.reply), methods=["POST"]),
            Route("/v1/responses", model.route(RESPONSES, model.reply), methods=["POST"]),
            Route("/v1/models", model.route(COMPLETIONS, model.models), methods=["GET"]),
            Route("/v1/models/{name}", model.route(MESSAGES, model.one_model), methods=["GET"]),
            Route("/_requests", model.route(MESSAGES, model.requests), methods=["GET"]),
            Route("/pages/{name}", _page, methods=["GET"]),
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


async def _page(request: Request) -> Response:
    page = library.show_page(request.path_params["name"])
    return HTMLResponse(page) if page else Response("There is no such page.", status_code=404)


async def _healthz(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _authorize(request: Request) -> None:
    header = request.headers.get("authorization", "")
    key = header.removeprefix("Bearer ").strip() or request.headers.get("x-api-key", "")
    if not key:
        raise ApiError(401, "x-api-key header is required")
    if key == "invalid":
        raise ApiError(401, "invalid x-api-key")


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        raise ApiError(400, "The request body is not valid JSON") from None


@dataclass(frozen=True)
class Form:
    """How a vendor writes requests and replies."""

    read: Callable[[Any], Any]  # a request, in Anthropic's form
    whole: Callable[[dict[str, Any]], dict[str, Any]]
    events: Callable[[dict[str, Any]], Iterator[Event]]
    sse: Callable[[Event], bytes]
    error_body: Callable[[ApiError, str], dict[str, Any]]
    error_name: str
    break_arguments: Callable[[dict[str, Any]], None]


MESSAGES = Form(
    lambda body: body, lambda one: one, wire.events, wire.sse, wire.error_body, "error", wire.break_arguments
)
COMPLETIONS = Form(
    completions.to_messages,
    completions.whole,
    completions.chunks,
    completions.sse,
    completions.error_body,
    "",
    completions.break_arguments,
)
Answer = Callable[[Request, Entry, Form], Awaitable[Any]]
RESPONSES = replace(COMPLETIONS, read=library.to_search, whole=library.to_response)


def _whole(whole: dict[str, Any], entry: Entry) -> Response:
    entry.outcome = "answered"
    return JSONResponse(whole, headers={"request-id": entry.id})


# A reply as server-sent events, with the faults of the request, until it ends or the client disconnects.


_PAUSE, _DROP, _HANG = "pause", "drop", "hang"  # the latter two are names of faults


async def stream(
    message: dict[str, Any], faults: Faults, delay: float, entry: Entry, form: Form
) -> AsyncIterator[bytes]:
    pause = faults.delay or delay
    ready: list[bytes] = []  # sent together, which takes the server and its client less than one by one
    try:
        for part in _parts(message, faults, entry, form, pauses=pause > 0):
            if isinstance(part, bytes):
                ready.append(part)
                continue
            yield b"".join(ready)
            ready.clear()
            if part == _DROP:
                entry.outcome = "dropped"
                raise ConnectionResetError  # the server closes a connection whose response is incomplete
            if part == _HANG:
                await asyncio.Event().wait()
            else:
                await asyncio.sleep(pause)
        yield b"".join(ready)
        entry.outcome = "cut" if faults.stream == "cut" else "answered"
    finally:
        entry.outcome = "disconnected" if entry.outcome == "open" else entry.outcome


def _parts(message: dict[str, Any], faults: Faults, entry: Entry, form: Form, *, pauses: bool) -> Iterator[bytes | str]:
    """The events, and between them what interrupts the stream: a pause, a drop or a hang."""
    deltas, fault = 0, faults.stream
    for name, data in form.events(message):
        is_delta = name == "content_block_delta"
        if fault and (name == "message_delta" or (is_delta and deltas >= faults.after)):
            if fault in MIDSTREAM:
                yield form.sse((form.error_name, form.error_body(ApiError(*MIDSTREAM[fault]), entry.id)))
                return
            if fault == "cut":
                return
            if fault in (_DROP, _HANG):
                yield fault
        if is_delta and pauses:
            yield _PAUSE
        if is_delta and fault == "malformed_tool_json":
            form.break_arguments(data)
        if name == "usage" and fault == "no_usage":
            continue
        deltas += is_delta
        yield form.sse((name, data))
