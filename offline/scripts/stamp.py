"""Writes the time at which each reply is sent: [[script:stamp n=20 delay=SECONDS]], n replies that call a tool, then
the last.

The only script whose replies differ at each repetition; `delay` is the pause before the stream sends a delta.
"""

import time

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.varied import varied
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    delay = marker.number("delay", 0)
    for number in range(marker.count("n", 1)):
        text = f"sent {time.time() + delay:.6f} exactly."
        yield Reply(text=text, calls=(ToolUse("list_files", varied("list_files", {}, number)),), delay=delay)
    yield Reply(text="Stamped.")
