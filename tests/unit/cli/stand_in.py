"""A small real HTTP server with responses like the API's, whose connections can be cut and which can be restarted."""

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args, get_origin

import uvicorn
from errand import models
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from domain.events import Event

TASK = "01jzzzzzzzzzzzzzzzzzzzzzzz"
BEGAN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
USAGE = {"llm_calls": 2, "tool_invocations": 1, "input_tokens": 1_200, "output_tokens": 34, "cost_usd": 0.0123}


RESPONSES: dict[str, type[BaseModel]] = {  # method and path -> the model that the API answers with
    r"GET /tasks": models.TaskPage,
    r"POST /tasks|POST /tasks/\w+/rerun": models.TaskHandle,
    r"GET /tasks/\w+|POST /tasks/\w+/(cancel|interrupt|promote)": models.Task,
    r"GET /tasks/\w+/result": models.Result,
    r"\w+ /tasks/\w+/budget": models.TaskBudget,
    r"GET (/tasks/\w+)?/input-requests": models.InputRequestPage,
    r"GET /tasks/\w+/workspace": models.WorkspaceListing,
    r"GET /tasks/\w+/trace": models.Trace,
    r"GET /conversations": models.ConversationPage,
    r"GET /conversations/\w+": models.Conversation,
    r"GET /conversations/\w+/turns": models.TurnPage,
    r"GET /conversations/\w+/mailbox": models.MailboxPage,
    r"POST /conversations/(run|\w+/(fire|fork|messages))": models.SessionHandle,
    r"GET /files": models.FilePage,
    r"POST /files": models.File,
    r"GET (/tasks/\w+)?/audit": models.AuditPage,
}


class StandIn:
    """Tests set its responses; `asked` has the requests it received."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.cut_after: list[int] = []  # each number cuts one connection in the middle of the event after it
        self.hold_after: int | None = None  # the stream stays open and silent after this event
        self.close_after: int | None = None  # one stream ends properly after this event, as when the API drains
        self.replay_all = False  # whether it sends events again that the client has already received
        self.refusals: dict[str, tuple[int, dict[str, Any]]] = {}  # path -> status and problem
        self.task: dict[str, Any] = {"task_id": TASK, "status": "working", "progress": {"step": 1, "total_steps": None}}
        self.result: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}  # path -> body
        self.as_given = False  # whether responses are sent without the fields that a test has not given
        self.sent: Any = None  # the latest response
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.queries: list[dict[str, str]] = []
        self.streams: list[dict[str, str]] = []  # the headers of each event stream that was opened
        self.feed: list[dict[str, Any]] = []  # events of the conversation TASK, whose stream has no end
        self.turns: list[tuple[str, list[Event]]] = []  # session and events of each accepted message or fire
        self.sessions: dict[str, dict[str, Any]] = {}
        self.open_for_messages = threading.Event()  # messages wait while it is not set
        self.open_for_messages.set()
        self.port = 0
        self._server: uvicorn.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def emit(self, *events: Event) -> None:
        for event in events:
            seq = len(self.events) + 1
            at = (BEGAN + timedelta(seconds=seq)).isoformat()
            self.events.append({"type": event.type, "seq": seq, "session_id": TASK, "at": at, **event.data()})
            if event.terminal:
                self.task["status"] = event.data()["status"]

    def emit_in(self, session_id: str, *events: Event) -> None:
        """Add events of a session to the conversation's stream, numbered over all its sessions."""
        for event in events:
            seq = 1 + sum(known["session_id"] == session_id for known in self.feed)
            number = len(self.feed) + 1
            at = (BEGAN + timedelta(seconds=number)).isoformat()
            known = {"type": event.type, "seq": seq, "conv_seq": number, "session_id": session_id, "at": at}
            self.feed.append({**known, **event.data()})

    def start(self) -> None:
        config = uvicorn.Config(
            Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT", "DELETE"])]),
            port=self.port,
            log_level="critical",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=0,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        assert self._server
        self.open_for_messages.set()  # a message that still waits would hold the server
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)

    def asked_for(self, path: str) -> list[Any]:
        return [body for _, asked, body in self.asked if asked == path]

    async def _answer(self, request: Request) -> Response:
        response = await self._response(request)
        asked = f"{request.method} {request.url.path}"
        kind = next((model for pattern, model in RESPONSES.items() if re.fullmatch(pattern, asked)), None)
        if kind is None or not isinstance(response, JSONResponse) or response.status_code >= 400:
            return response
        body = json.loads(bytes(response.body))
        self.sent = complete(kind, body) if isinstance(body, dict) and not self.as_given else body
        return JSONResponse(self.sent, response.status_code)

    async def _response(self, request: Request) -> Response:
        path, body = request.url.path, await request.body()
        self.asked.append((request.method, path, json.loads(body) if _is_json(request) else body))
        self.headers.append(dict(request.headers))
        self.queries.append(dict(request.query_params))
        if path in self.refusals:
            status, problem = self.refusals[path]
            return JSONResponse(problem, status, media_type="application/problem+json")
        if path in self.answers:
            return JSONResponse(self.answers[path])
        if path == "/tasks" and request.method == "POST":
            return JSONResponse({"task_id": TASK, "status": "submitted", "poll_interval": 2000}, 202)
        if path == "/tasks":
            return JSONResponse({"items": [self.task], "next_cursor": "c1"})
        if path == f"/tasks/{TASK}":
            return JSONResponse(self.task)
        if path == f"/tasks/{TASK}/cancel":
            return JSONResponse(self.task)
        if path == f"/tasks/{TASK}/result":
            return self._result()
        if path == f"/tasks/{TASK}/events":
            self.streams.append(dict(request.headers))
            after = 0 if self.replay_all else int(request.headers.get("last-event-id", 0))
            if after >= len(self.events) and self.task["status"] in ("completed", "failed", "cancelled"):
                return Response(status_code=204)
            return StreamingResponse(self._stream(after), media_type="text/event-stream")
        if path in ("/conversations/run", f"/conversations/{TASK}/fire"):
            await asyncio.to_thread(self.open_for_messages.wait, 60)
            session_id, events = self.turns.pop(0)
            self.emit_in(session_id, *events)
            return JSONResponse({"session_id": session_id, "conversation_id": TASK, "queued": False}, 202)
        if path == f"/conversations/{TASK}/events":
            return self._conversation_events(request)
        if path.startswith("/sessions/") and path.rpartition("/")[2] in self.sessions:
            return JSONResponse(self.sessions[path.rpartition("/")[2]])
        if path == "/files":
            return JSONResponse({"file_id": f"file-{request.query_params['name']}"}, 201)
        if path.startswith("/files/"):
            return Response(b"# Report\n\xff", media_type="application/octet-stream")
        return JSONResponse({"type": "not-found", "status": 404, "detail": "There is nothing by that id."}, 404)

    def _conversation_events(self, request: Request) -> Response:
        after = int(request.headers.get("last-event-id") or request.query_params.get("after") or 0)
        if after > len(self.feed):
            problem = {"type": "cursor-ahead", "status": 409, "detail": "ahead", "last": len(self.feed)}
            return JSONResponse(problem, 409, media_type="application/problem+json")
        return StreamingResponse(self._endless(after), media_type="text/event-stream")

    async def _endless(self, after: int) -> AsyncIterator[bytes]:
        while True:
            for event in self.feed[after:]:
                yield f"id: {event['conv_seq']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                after = event["conv_seq"]
                if self.cut_after and after == self.cut_after[0]:
                    self.cut_after.pop(0)
                    raise ConnectionAbortedError
            await asyncio.sleep(0.01)

    def _result(self) -> Response:
        if self.task["status"] not in ("completed", "failed", "cancelled"):
            return JSONResponse(
                {"type": "conflict", "status": 409, "detail": f"The task is {self.task['status']}."}, 409
            )
        return JSONResponse({"task_id": TASK, "usage": USAGE, **self.result, "status": self.task["status"]})

    async def _stream(self, after: int) -> AsyncIterator[bytes]:
        yield b": welcome\n\n"
        for event in self.events[after:]:
            wire = f"id: {event['seq']}\nevent: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            if self.cut_after and event["seq"] == self.cut_after[0] + 1:
                self.cut_after.pop(0)
                yield wire[: len(wire) // 2]
                raise ConnectionAbortedError
            if self.close_after is not None and event["seq"] == self.close_after + 1:
                self.close_after = None
                return
            yield wire
            if self.hold_after == event["seq"]:
                await asyncio.sleep(3_600)


def _is_json(request: Request) -> bool:
    return request.headers.get("content-type") == "application/json"


def complete(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """A whole response of this model: what a test does not give is empty."""
    needed = {name: info.annotation for name, info in model.model_fields.items() if info.is_required()}
    body = {name: _empty(kind) for name, kind in needed.items()} | given
    for name, info in model.model_fields.items():
        if (inner := _model_of(info.annotation)) and isinstance(body.get(name), dict):
            body[name] = complete(inner, body[name])
        elif get_origin(info.annotation) is dict and (inner := _model_of(get_args(info.annotation)[1])):
            body[name] = {key: complete(inner, one) for key, one in body[name].items()}
        elif inner and isinstance(body.get(name), list):
            body[name] = [complete(inner, one) for one in body[name]]
    return body


def _model_of(kind: Any) -> type[BaseModel] | None:
    """The model in an annotation such as `Task`, `list[Task]` or `Task | None`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if get_origin(kind) is dict:
        return None
    return next((found for part in get_args(kind) if (found := _model_of(part))), None)


def _empty(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return complete(kind, {})
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    values = {str: "", int: 0, float: 0.0, bool: False, datetime: BEGAN.isoformat()}
    return values.get(kind, [] if get_origin(kind) is list else {} if get_origin(kind) is dict else None)
