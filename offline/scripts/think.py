"""Thinks and answers: [[script:think thought="..." text="..."]]; the thought is sent only if thinking is enabled."""

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    thought = marker.text("thought", "First I weigh what was asked, then I choose the shortest way to an answer.")
    yield Reply(thinking=thought, text=marker.text("text", "I have thought about it."))
