"""Always calls a tool, for the limits that must end it: [[script:forever tool=NAME input={}]]."""

from itertools import count

from offline.conversation import Conversation
from offline.markers import Marker
from offline.reply import Call, Reply, Story
from offline.scripts.varied import varied


def tell(conversation: Conversation, marker: Marker) -> Story:
    for number in count(conversation.done_before + 1):
        tool = marker.text("tool", "report_progress")
        given = varied(tool, marker.options.get("input") or {}, number)
        yield Reply(text=f"Round {number}.", calls=(Call(tool, given),))
