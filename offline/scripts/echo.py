"""Answers with the user's own text."""

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    yield Reply(text=without_markers(transcript.request) or "(nothing but markers)")
