"""Answers a later message in a conversation that began with a script, by quoting the last answer."""

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    message = " ".join(transcript.request.split())[:300]
    yield Reply(text=f"You wrote: {message}\n\nMy last answer is still: {transcript.last_answer}")
