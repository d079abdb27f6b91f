"""Exactly the listed calls in one reply, then the results: [[script:tools json=[{"name": ..., "input": {...}}]]]."""

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Reply, Story
from offline.scripts.steps import calls_of, quoted


def tell(conversation: Conversation, marker: Marker) -> Story:
    results = yield Reply(calls=calls_of(marker, marker.options.get("json")))
    yield Reply(text=quoted(results))
