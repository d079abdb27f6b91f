"""Answers with the user's own text."""

from offline.conversation import Conversation
from offline.markers import Marker, without_markers
from offline.reply import Reply, Story


def tell(conversation: Conversation, marker: Marker) -> Story:
    yield Reply(text=without_markers(conversation.request) or "(nothing but markers)")
