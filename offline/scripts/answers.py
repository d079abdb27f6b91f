"""Gives one answer after the other, whatever the user says: [[script:answers json=["first", "second"]]]."""

from offline.markers import Marker, MarkerError
from offline.reply import Replies, Reply
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    answers = marker.options.get("json")
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise MarkerError(f'{marker.raw[:80]}: json=["...", ...] is needed')
    yield Reply(text=answers[min(transcript.assistant_messages, len(answers) - 1)])
