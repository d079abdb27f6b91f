"""Makes the listed calls in one reply, then answers with the results: [[script:tools json=[{"name", "input"}]]]."""

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.scripts.steps import calls_of, quoted
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    results = yield Reply(calls=calls_of(marker, marker.options.get("json")))
    yield Reply(text=quoted(results))
