"""The small agents of the samples: support desk, concierge, panel and asset subagent."""

import re

from offline.markers import Marker, without_markers
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import (
    files_in,
    format_count,
    gist,
    list_files,
    question_of,
    read_file,
    with_notes,
    write_file,
)
from offline.transcript import Transcript

_SUBJECTS = {
    "billing": re.compile(r"invoice|bill|pay|refund|charge|money|price", re.IGNORECASE),
    "technician": re.compile(r"broken|error|crash|not work|does not|cannot|fail|slow", re.IGNORECASE),
}
_ANSWERS = {
    "billing": "This is billing. I have your question: {}. You get a corrected invoice within two days.",
    "technician": "This is the technician. I have your question: {}. Please restart it once and tell me what you see.",
}


def help_customer(transcript: Transcript, marker: Marker) -> Replies:
    """One exchange; the one of the three agents that has the conversation now gives each reply."""
    question, agent = question_of(transcript), transcript.agent
    subject = next((name for name, pattern in _SUBJECTS.items() if pattern.search(question)), None)
    came_from_desk = any(result.name in _SUBJECTS for made in transcript.rounds() for result in made)
    if subject is not None and (came_from_desk or agent != subject):
        yield Reply(
            text=f"This is for {subject}.", calls=(ToolUse(subject, {"message": f"The customer asks: {question}"}),)
        )
        agent = subject
    answer = _ANSWERS.get(agent or "", "We are here from 9 to 17. Is it about an invoice, or does something not work?")
    yield Reply(text=with_notes(answer.format(question.rstrip(".?!")), transcript))


_REPORT = re.compile(r"<system_message[^>]*>\n(.*?)\n</system_message>", re.DOTALL)


def plan_trip(transcript: Transcript, marker: Marker) -> Replies:
    """The chat agent and its scout: one starts the other in the background, which looks around and reports back."""
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
    report = f"{question_of(transcript)} I found {format_count(len(found), 'file')} in the workspace{named}."
    yield Reply(calls=(ToolUse("send_agent_message", {"message": report}),))
    yield Reply(text="Reported.")


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


def make_statement(transcript: Transcript, marker: Marker) -> Replies:
    """The panel: three subagents, each of which makes one statement per turn."""
    said = _SAID[transcript.agent or ""]
    yield Reply(text=said[min(transcript.assistant_messages, len(said) - 1)])


_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">\n'
    "  <title>{title}</title>\n"
    '  <circle cx="32" cy="32" r="26" fill="#3f7d3a"/>\n'
    '  <circle cx="26" cy="26" r="12" fill="#5aa653"/>\n'
    "</svg>\n"
)
_FILE = re.compile(r"[\w-]+\.svg")
_NO_WORD = re.compile(r"[^a-z0-9]+")


def make_asset(transcript: Transcript, marker: Marker) -> Replies:
    """The script of the agent asset_subagent: its worker draws an asset, its reviewer checks it and hands it over."""
    return _review(transcript) if "approve_asset" in transcript.tools else _draw(transcript)


def _draw(transcript: Transcript) -> Replies:
    goal = without_markers(transcript.request).splitlines()[0][:60]
    path = (_NO_WORD.sub("-", goal.lower()).strip("-")[:40] or "asset") + ".svg"
    [wrote] = yield Reply(text=f"I draw it as {path}.", calls=(write_file(path, _SVG.format(title=goal)),))
    if wrote.is_error:
        yield Reply(text="It cannot be kept.", calls=(ToolUse("fail_asset", {"reason": gist(wrote)}),))
    yield Reply(text=f"The asset is in {path}: a round shape with light from the upper left.")


def _review(transcript: Transcript) -> Replies:
    named = _FILE.findall(transcript.request)
    path = named[-1] if named else "asset.svg"
    status = ToolUse("update_asset_status", {"status": f"Reviewing {path}"})
    _, page = yield Reply(text=f"I look at {path}.", calls=(status, read_file(path)))
    verdict = "It is drawn from above, 64 by 64 units, without text."
    if page.is_error or "viewBox" not in page.text:
        verdict = f"I hand it over with its faults: {gist(page)}"
    summary = f"{path}: a top-down asset of 64 by 64 units, checked for size, view and text."
    yield Reply(text=verdict, calls=(ToolUse("approve_asset", {"summary": summary, "attachments": [path]}),))
