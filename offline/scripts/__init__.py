"""The scripts by name, and which of them answers a conversation. A new script is one file and one line here."""

from offline.conversation import Conversation
from offline.markers import Marker, MarkerError, find_markers
from offline.reply import Reply, Script, Tell, play
from offline.scripts import (
    answers,
    assistant,
    chain,
    code_reviewer,
    count,
    echo,
    follow_up,
    forever,
    orchestrator,
    repeat,
    researcher,
    say,
    stamp,
    steps,
    think,
    tools,
    unknown,
)
from offline.scripts.judge import VERDICT, judged
from offline.scripts.summary import summary


def _demo(tell: Tell) -> Script:
    return Script(tell, delay=0.02, offered_only=True)  # slow enough to watch


SCRIPTS: dict[str, Script] = {
    "echo": Script(echo.tell),
    "count": Script(count.tell),
    "tools": Script(tools.tell),
    "steps": Script(steps.tell),
    "chain": Script(chain.tell),
    "say": Script(say.tell),
    "answers": Script(answers.tell),
    "stamp": Script(stamp.tell),
    "forever": Script(forever.tell),
    "repeat": Script(repeat.tell),
    "think": Script(think.tell),
    "unknown": Script(unknown.tell),
    "follow-up": Script(follow_up.tell),
    "assistant": _demo(assistant.tell),
    "researcher": _demo(researcher.tell),
    "code-reviewer": _demo(code_reviewer.tell),
    "orchestrator": _demo(orchestrator.tell),
}


def answer(conversation: Conversation) -> Reply:
    """The reply that this conversation gets, now and at every repetition."""
    if conversation.tools == {VERDICT}:
        return judged(conversation)
    if not conversation.tools and conversation.results:
        return Reply(text=summary(conversation))
    marker = choose(conversation)
    reply = play(SCRIPTS[marker.name], conversation, marker)
    return reply if conversation.tools or not reply.calls else Reply(text=summary(conversation))


def choose(conversation: Conversation) -> Marker:
    """By marker in the request or the system prompt, else by the agent."""
    for text in (conversation.request, conversation.system):
        for marker in find_markers(text, "script"):
            if marker.name not in SCRIPTS:
                raise MarkerError(f"{marker.raw}: no such script; there are {', '.join(SCRIPTS)}")
            return marker
    if conversation.follow_up and find_markers(conversation.first, "script"):
        return _marker("follow-up")
    return _marker(conversation.agent if conversation.agent in SCRIPTS else "unknown")


def _marker(name: str | None) -> Marker:
    return Marker(kind="script", name=name or "unknown", raw="")
