"""All scripts by name, and the choice of one for a request. A new script is one file and one line here."""

from offline.markers import Marker, MarkerError, find_markers
from offline.reply import Reply, Script, ScriptFunction, play
from offline.scripts import (
    answers,
    asset_subagent,
    assistant,
    chain,
    code_reviewer,
    concierge,
    count,
    echo,
    follow_up,
    forever,
    mender,
    orchestrator,
    panel,
    repeat,
    researcher,
    say,
    slow,
    stamp,
    steps,
    support_desk,
    think,
    tools,
    turns,
    unknown,
)
from offline.scripts.judge import VERDICT, judge
from offline.scripts.summary import summary
from offline.transcript import Transcript


def _demo(replies: ScriptFunction) -> Script:
    return Script(replies, delay=0.02, offered_only=True)  # slow enough to watch


SCRIPTS: dict[str, Script] = {
    "echo": Script(echo.replies),
    "count": Script(count.replies),
    "tools": Script(tools.replies),
    "steps": Script(steps.replies),
    "chain": Script(chain.replies),
    "say": Script(say.replies),
    "slow": Script(slow.replies, offered_only=True),
    "answers": Script(answers.replies),
    "stamp": Script(stamp.replies),
    "turns": Script(turns.replies),
    "forever": Script(forever.replies),
    "repeat": Script(repeat.replies),
    "think": Script(think.replies),
    "unknown": Script(unknown.replies),
    "follow-up": Script(follow_up.replies),
    "assistant": _demo(assistant.replies),
    "researcher": _demo(researcher.replies),
    "code-reviewer": _demo(code_reviewer.replies),
    "asset_subagent": _demo(asset_subagent.replies),
    "orchestrator": _demo(orchestrator.replies),
    "support-desk": _demo(support_desk.replies),
    "billing": _demo(support_desk.replies),
    "technician": _demo(support_desk.replies),
    "mender": _demo(mender.replies),
    "concierge": _demo(concierge.replies),
    "scout": _demo(concierge.scout),
    "optimist": _demo(panel.replies),
    "sceptic": _demo(panel.replies),
    "pragmatist": _demo(panel.replies),
}


def answer(transcript: Transcript) -> Reply:
    """The reply to a request; a repeated request gets the same reply."""
    if transcript.tools == {VERDICT}:
        return judge(transcript)
    if not transcript.tools and transcript.results:
        return Reply(text=summary(transcript))
    marker = choose(transcript)
    reply = play(SCRIPTS[marker.name], transcript, marker)
    return reply if transcript.tools or not reply.calls else Reply(text=summary(transcript))


def choose(transcript: Transcript) -> Marker:
    """The script that a marker in the request or the system prompt names, or else that of the agent."""
    for text in (transcript.request, transcript.system):
        for marker in find_markers(text, "script"):
            if marker.name not in SCRIPTS:
                raise MarkerError(f"{marker.raw}: no such script; there are {', '.join(SCRIPTS)}")
            return marker
    if transcript.follow_up and find_markers(transcript.first, "script"):
        return _marker("follow-up")
    return _marker(transcript.agent if transcript.agent in SCRIPTS else "unknown")


def _marker(name: str | None) -> Marker:
    return Marker(kind="script", name=name or "unknown", raw="")
