"""All scripts by name, and the choice of one for a request. A new script is one function and one line here.

Read marked.py first (scripts that a marker names), then demo.py; the other files play the sample agents, closing.py the
requests that the platform itself makes. offline/server.py imports this.
"""

from offline.markers import Marker, MarkerError, find_markers
from offline.reply import Reply, Script, ScriptFunction, play
from offline.scripts import assistant, code_reviewer, coder, marked, mender, orchestrator, researcher, teams
from offline.scripts.closing import CHOOSE, VERDICT, choose_attempt, give_verdicts, summarize
from offline.transcript import Transcript


def _demo(replies: ScriptFunction) -> Script:
    return Script(replies, delay=0.02, offered_only=True)  # slow enough to watch


SCRIPTS: dict[str, Script] = {
    "echo": Script(marked.echo),
    "see": Script(marked.see),
    "count": Script(marked.count_steps),
    "tools": Script(marked.take_steps),
    "steps": Script(marked.take_steps),
    "chain": Script(marked.chain_steps),
    "say": Script(marked.say),
    "slow": Script(marked.work_slowly, offered_only=True),
    "turns": Script(marked.take_turns),
    "forever": Script(marked.count_steps),
    "repeat": Script(marked.repeat),
    "unknown": Script(marked.explain),
    "follow-up": Script(marked.follow_up),
    "assistant": _demo(assistant.replies),
    "researcher": _demo(researcher.replies),
    "code-reviewer": _demo(code_reviewer.replies),
    "coder": _demo(coder.replies),
    "asset_subagent": _demo(teams.make_asset),
    "orchestrator": _demo(orchestrator.replies),
    "support-desk": _demo(teams.help_customer),
    "billing": _demo(teams.help_customer),
    "technician": _demo(teams.help_customer),
    "mender": _demo(mender.replies),
    "concierge": _demo(teams.plan_trip),
    "scout": _demo(teams.scout),
    "optimist": _demo(teams.make_statement),
    "sceptic": _demo(teams.make_statement),
    "pragmatist": _demo(teams.make_statement),
}


def answer(transcript: Transcript) -> Reply:
    """The reply to a request; a repeated request gets the same reply."""
    if transcript.tools == {VERDICT}:
        return give_verdicts(transcript)
    if transcript.tools == {CHOOSE}:
        return choose_attempt(transcript)
    if not transcript.tools and transcript.results:
        return Reply(text=summarize(transcript))
    marker = choose(transcript)
    reply = play(SCRIPTS[marker.name], transcript, marker)
    return reply if transcript.tools or not reply.calls else Reply(text=summarize(transcript))


def choose(transcript: Transcript) -> Marker:
    """The script that a marker in the request or the system prompt names, or else that of the agent."""
    for text in (transcript.request, transcript.system):
        for marker in find_markers(text, "script"):
            if marker.name not in SCRIPTS:
                raise MarkerError(f"{marker.raw}: no such script; there are {', '.join(SCRIPTS)}")
            return marker
    name = transcript.agent or ""
    if transcript.follow_up and find_markers(transcript.first, "script"):
        name = "follow-up"
    return Marker(kind="script", name=name if name in SCRIPTS else "unknown", raw="")
