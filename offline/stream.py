"""Sends a reply as server-sent events, with the faults of the request, until it ends or the client disconnects."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.types import Receive, Scope, Send

from offline.faults import MIDSTREAM, Faults
from offline.request_log import Entry
from offline.wire import error_body, events, sse


class _Dropped(Exception):
    """Raised to close the connection before the response is complete."""


class MessageStream:
    """An ASGI response. Starlette's own would end a dropped stream properly."""

    def __init__(self, message: dict[str, Any], faults: Faults, delay: float, entry: Entry) -> None:
        self._message = message
        self._faults = faults
        self._delay = faults.delay or delay
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(client_left(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self._entry.outcome = "disconnected"
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"request-id", self._entry.id.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for chunk in self._chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except _Dropped:
            self._entry.outcome = "dropped"
            return  # the server closes a connection whose response is incomplete
        self._entry.outcome = "cut" if self._faults.stream == "cut" else "answered"
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        deltas = 0
        for name, data in events(self._message):
            is_delta = name == "content_block_delta"
            last = name == "message_delta"
            if self._faults.stream and (last or (is_delta and deltas >= self._faults.after)):
                fault = self._faults.stream
                if fault in MIDSTREAM:
                    yield sse(("error", error_body(*MIDSTREAM[fault], self._entry.id)))
                    return
                if fault == "cut":
                    return
                if fault == "drop":
                    raise _Dropped
                if fault == "hang":
                    await asyncio.Event().wait()
            if is_delta and self._delay:
                await asyncio.sleep(self._delay)
            if (
                is_delta
                and self._faults.stream == "malformed_tool_json"
                and data["delta"]["type"] == "input_json_delta"
            ):
                data["delta"]["partial_json"] = '{"broken: ' + data["delta"]["partial_json"]
            deltas += is_delta
            yield sse((name, data))


async def client_left(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
