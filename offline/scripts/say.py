"""Answers with a text, slowly if asked to: [[script:say text="..." words=N delay=SECONDS stop=STOP_REASON]]."""

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    numbered = " ".join(f"word{number}" for number in range(1, marker.count("words", 0) + 1))
    text = marker.text("text") or numbered or "Said."
    yield Reply(text=text, delay=marker.number("delay", 0), stop_reason=marker.text("stop") or None)
