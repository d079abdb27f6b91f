"""The answer where no tools are offered: what was done so far, from what the tools really returned."""

from offline.conversation import Conversation, Result
from offline.markers import without_markers

_SHOWN = 12


def summary(conversation: Conversation) -> str:
    results = conversation.results
    done = conversation.done_before + len(results)
    # the request stays whole, script marker included: after a compaction this text may be all that is left of it
    request = without_markers(conversation.first, ("fault",))[:4_000]
    lines = [f"Summary: {done} tool call{'' if done == 1 else 's'} so far.", "", f"The request was: {request}"]
    if results:
        lines += ["", "What the latest calls returned:", *map(_line, results[-_SHOWN:])]
    return "\n".join(lines)


def _line(result: Result) -> str:
    words = " ".join(result.text.split())
    return f"- {result.name} ({'failed' if result.is_error else 'ok'}): {words[:120] or '(no output)'}"
