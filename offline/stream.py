"""Sends a reply as server-sent events, with the faults of the request, until it ends or the client disconnects."""

import asyncio
from collections.abc import Iterator
from typing import Any

from starlette.types import Receive, Scope, Send

from offline.faults import MIDSTREAM, Faults
from offline.request_log import Entry
from offline.wire import error_body, events, sse

_PAUSE, _DROP, _HANG = "pause", "drop", "hang"  # the latter two are names of faults


class MessageStream:
    """An ASGI response. Starlette's own would end a dropped stream properly."""

    def __init__(self, message: dict[str, Any], faults: Faults, delay: float, entry: Entry) -> None:
        self._message = message
        self._faults = faults
        self._delay = faults.delay or delay
        self._entry = entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._delay and self._faults.stream != _HANG:
            await self._send(send)
            return
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
        ready: list[bytes] = []  # sent together, which takes the server and its client less than one by one
        for part in self._parts():
            if isinstance(part, bytes):
                ready.append(part)
                continue
            await send({"type": "http.response.body", "body": b"".join(ready), "more_body": True})
            ready.clear()
            if part == _DROP:
                self._entry.outcome = "dropped"
                return  # the server closes a connection whose response is incomplete
            if part == _HANG:
                await asyncio.Event().wait()
            else:
                await asyncio.sleep(self._delay)
        self._entry.outcome = "cut" if self._faults.stream == "cut" else "answered"
        await send({"type": "http.response.body", "body": b"".join(ready), "more_body": False})

    def _parts(self) -> Iterator[bytes | str]:
        """The events, and between them what interrupts the stream: a pause, a drop or a hang."""
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
                if fault in (_DROP, _HANG):
                    yield fault
            if is_delta and self._delay:
                yield _PAUSE
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
