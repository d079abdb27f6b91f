"""The chat agent and its scout: one starts the other in the background, which looks around and reports back."""

import re

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import files_in, list_files, many, question_of
from offline.transcript import Transcript

_REPORT = re.compile(r"<system_message[^>]*>\n(.*?)\n</system_message>", re.DOTALL)


def replies(transcript: Transcript, marker: Marker) -> Replies:
    if reports := _REPORT.findall(transcript.request):
        yield Reply(text=_news(reports))
        return
    start = ToolUse("start_background_agent", {"prompt": question_of(transcript), "name": "scout"})
    [started] = yield Reply(calls=(start,))
    if started.is_error:
        yield Reply(text=f"I could not send anybody to look into it: {started.text[:200]}")
        return
    early = _REPORT.findall("\n".join(transcript.notes))  # the scout reported before this answer
    yield Reply(text=_news(early) if early else "I have sent a scout to look into it and will write again.")


def _news(reports: list[str]) -> str:
    return f"News from my scout: {reports[-1]}"


def scout(transcript: Transcript, marker: Marker) -> Replies:
    [listing] = yield Reply(calls=(list_files(),))
    found = files_in(listing)
    named = f": {', '.join(found[:5])}" if found else ""
    report = f"{question_of(transcript)} I found {many(len(found), 'file')} in the workspace{named}."
    yield Reply(calls=(ToolUse("send_agent_message", {"message": report}),))
    yield Reply(text="Reported.")
