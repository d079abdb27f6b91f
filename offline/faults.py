"""Faults on demand: markers [[fault:KIND option=value]] in the user's text make a request fail as the real API does.
docs/agents.md has the kinds and their options.

Kinds with a status answer before anything is streamed; those that break a stream change nothing for a request without
one. How often a fault happened is counted for its marker in this conversation, which is known by the first text block
of its first message. With several markers, the first that is still due takes effect; the conditions combine with all.
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
