"""Thinks aloud and answers: [[script:think thought="..." text="..."]]; the thought shows where thinking is enabled."""

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Reply, Story


def tell(conversation: Conversation, marker: Marker) -> Story:
    thought = marker.text("thought", "First I weigh what was asked, then I choose the shortest way to an answer.")
    yield Reply(thinking=thought, text=marker.text("text", "I have thought about it."))
