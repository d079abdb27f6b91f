"""Says something, if wanted slowly: [[script:say text="words" words=N delay=SECONDS stop=STOP_REASON]]."""

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Reply, Story


def tell(conversation: Conversation, marker: Marker) -> Story:
    words = [f"word{number}" for number in range(1, marker.count("words", 0) + 1)]
    text = marker.text("text") or " ".join(words) or "Said."
    yield Reply(text=text, delay=marker.number("delay", 0), stop_reason=marker.text("stop") or None)
