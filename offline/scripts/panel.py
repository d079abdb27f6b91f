"""The panel: three subagents, each of which makes one statement per turn."""

from offline.markers import Marker
from offline.reply import Replies, Reply
from offline.transcript import Transcript

_SAID = {
    "optimist": (
        "If it works, everybody saves an hour a day. It takes two people and a month.",
        "Then let us measure it from the first day on. That is worth the month.",
    ),
    "sceptic": (
        "Nobody has shown that the hour is lost where you look for it. @pragmatist, how would we find out?",
        "A week of figures would convince me, of one team at least.",
    ),
    "pragmatist": (
        "Ask one team to note it down for a week. That costs nothing.",
        "Agreed: one team, one week, and we decide on Monday.",
    ),
}


def replies(transcript: Transcript, marker: Marker) -> Replies:
    said = _SAID[transcript.agent or ""]
    yield Reply(text=said[min(transcript.assistant_messages, len(said) - 1)])
