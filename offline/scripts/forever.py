"""Calls a tool in every reply, until a limit ends the session: [[script:forever tool=NAME input={}]]."""

from itertools import count

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.varied import varied
from offline.transcript import Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    skipped = len(transcript.pairs)
    for number in count(transcript.done_before + skipped + 1):
        tool = marker.text("tool", "report_progress")
        given = varied(tool, marker.options.get("input") or {}, number)
        yield Reply(text=f"Round {number}.", calls=(ToolUse(tool, given),), skipped=skipped)
