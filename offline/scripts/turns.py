"""Replies by number, for one side of an agent: [[script:turns json=[{"text": "...", "calls": [...]}]]] in its prompt.

The first response of the side is the first of the list, and so on; the last is repeated. The script ignores messages
of others, so each side can have its own script.
"""

from offline.markers import Marker, MarkerError
from offline.reply import Replies, Reply
from offline.scripts.steps import calls_of
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    listed = marker.options.get("json")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise MarkerError(f"{marker.raw}: json must be a list of replies")
    chosen = listed[min(transcript.assistant_messages, len(listed) - 1)]
    calls = tuple(calls_of(marker, chosen.get("calls") or []))
    while True:  # a request with tool results belongs to the same reply
        yield Reply(text=str(chosen.get("text") or ""), calls=calls, delay=marker.number("delay", 0))
