"""Keeps a log book slowly, so that there is time to kill something: [[script:slow seconds=90 steps=12]]."""

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.scripts.demo import files_in, list_files, many, progress, write_file
from offline.transcript import Transcript

_PIECES = 14  # a reply is streamed in about so many pieces


def replies(transcript: Transcript, marker: Marker) -> Replies:
    steps = max(1, marker.count("steps", 12))
    delay = marker.number("seconds", 90) / steps / _PIECES
    for hour in range(1, steps + 1):
        path = f"log/hour-{hour:02}.md"
        yield Reply(
            text=f"Hour {hour}: the lamp is trimmed and the sea is calm. I write it into the log book.",
            calls=(
                write_file(path, f"Hour {hour}: lamp trimmed, sea calm.\n"),
                progress(f"Hour {hour} of {steps}", 100 * hour // steps),
            ),
            delay=delay,
        )
    [listing] = yield Reply(text="I read through the log book.", calls=(list_files("log"),))
    yield Reply(text=f"The log book has {many(len(files_in(listing)), 'entry').replace('entrys', 'entries')}.")
