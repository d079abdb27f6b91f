"""Faults on demand: markers in the user's text that make a request fail as the real API does.

    [[fault:KIND option=value ...]]

Kinds that answer with an error status, before anything is streamed:
    429 500 529 and any other status from 400 to 599; `auth` is 401
        retry_after=SECONDS          sent as the retry-after header
        x_should_retry=true|false    sent as the x-should-retry header
        message="text"               instead of the usual message
        code=NAME                    the error's code, in OpenAI's form
    toolong window=N                 400 "prompt is too long" when the prompt has more than N tokens

Kinds that break the stream, if the request asks for one:
    overloaded_midstream             an overloaded_error event
    api_midstream                    an api_error event
    invalid_midstream                an invalid_request_error event
    cut                              the stream ends properly, but without stop_reason
    drop                             the connection is dropped
    hang                             nothing more comes until the client disconnects
    malformed_tool_json              the arguments of each tool call are not JSON
    no_usage                         the stream ends without its usage (OpenAI's form only)
    slow delay=SECONDS               pause between two deltas (0.2)
        after=N                      deltas sent before it happens (2; hang: 0)

Options of every kind:
    times=N | always                 how often it happens (1; slow and toolong: always), counted for this marker in
                                     this conversation (identified by the first text block of the first message)
    at=K                             only for the K-th reply of the model in the transcript, from 1
    model=NAME                       only for requests to that model

With several markers, the first that is still due takes effect. `slow` combines with the others.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

from offline.markers import Marker, MarkerError, find_markers
from offline.transcript import Transcript
from offline.wire import ApiError

MIDSTREAM = {
    "overloaded_midstream": (529, "Overloaded"),
    "api_midstream": (500, "Internal server error"),
    "invalid_midstream": (400, "The request became invalid while it was answered"),
}
STREAM_KINDS = (*MIDSTREAM, "cut", "drop", "hang", "malformed_tool_json", "no_usage")
CONDITIONS = ("slow", "toolong")
_MESSAGES = {401: "invalid authorization header", 429: "This request would exceed your rate limit", 529: "Overloaded"}
_REMEMBERED = 20_000


@dataclass(frozen=True)
class Faults:
    """The faults of one request."""

    error: ApiError | None = None
    stream: str | None = None  # one of the kinds that break a stream
    after: int = 0
    delay: float = 0
    window: int | None = None


@dataclass
class FaultCounter:
    """Counts how often each marker took effect in each conversation; no other state influences a reply."""

    _counts: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def take(self, transcript: Transcript) -> Faults:
        error = stream = window = None
        after, delay = 0, 0.0
        number = transcript.assistant_messages + 1
        for index, marker in enumerate(one for text in transcript.texts for one in find_markers(text, "fault")):
            if marker.count("at", number) != number or marker.text("model", transcript.model) != transcript.model:
                continue
            if marker.name == "slow":
                delay = marker.number("delay", 0.2) if self._due(index, marker, transcript) else delay
            elif marker.name == "toolong":
                window = marker.count("window", 1_000) if self._due(index, marker, transcript) else window
            elif error is None and stream is None and self._due(index, marker, transcript):
                if marker.name in STREAM_KINDS:
                    stream, after = marker.name, marker.count("after", 0 if marker.name == "hang" else 2)
                else:
                    error = _status_error(marker)
        return Faults(error, stream, after, delay, window)

    def _due(self, index: int, marker: Marker, transcript: Transcript) -> bool:
        times = marker.text("times", "always" if marker.name in CONDITIONS else "1")
        if times == "always":
            return True
        key = hashlib.sha256(f"{index}\0{marker.raw}\0{transcript.opening}".encode()).hexdigest()
        happened = self._counts.get(key, 0)
        if happened >= marker.count("times", 1):
            return False
        self._counts[key] = happened + 1
        while len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)
        return True


def _status_error(marker: Marker) -> ApiError:
    if marker.name != "auth" and not (marker.name.isdigit() and 400 <= int(marker.name) <= 599):
        kinds = ", ".join((*STREAM_KINDS, *CONDITIONS, "auth", "400 to 599"))
        raise MarkerError(f"{marker.raw}: no such fault; there are {kinds}")
    status = 401 if marker.name == "auth" else int(marker.name)
    headers = {}
    for option, header in (("retry_after", "retry-after"), ("x_should_retry", "x-should-retry")):
        if option in marker.options:
            headers[header] = marker.text(option)
    message = marker.text("message") or _MESSAGES.get(status, f"Injected fault {status}")
    return ApiError(status, message, headers, code=marker.text("code") or None)
