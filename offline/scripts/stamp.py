"""Says when its first words leave: [[script:stamp n=20 delay=SECONDS]], n replies that call a tool, then the last.

The only script whose words differ at each repetition; `delay` is what the stream waits before it sends a delta.
"""

import time

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Call, Reply, Story
from offline.scripts.varied import varied


def tell(conversation: Conversation, marker: Marker) -> Story:
    delay = marker.number("delay", 0)
    for number in range(marker.count("n", 1)):
        words = f"sent {time.time() + delay:.6f} exactly."
        yield Reply(text=words, calls=(Call("list_files", varied("list_files", {}, number)),), delay=delay)
    yield Reply(text="Stamped.")
