"""What a script answers: words, tool calls, or both; and how a script is played against a conversation."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from offline.conversation import Conversation, Result
from offline.markers import Marker


@dataclass(frozen=True)
class Call:
    name: str
    input: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str = ""
    delay: float = 0  # seconds between two deltas of the stream
    stop_reason: str | None = None  # None: tool_use with calls, else end_turn


Story = Generator[Reply, list[Result], None]  # yields a reply, receives what its calls returned; the last reply ends it
Tell = Callable[[Conversation, Marker], Story]


@dataclass(frozen=True)
class Script:
    tell: Tell
    delay: float = 0
    offered_only: bool = False  # leave out calls of tools that the agent does not have


def play(script: Script, conversation: Conversation, marker: Marker) -> Reply:
    """Tell the story again from its start, with the real results, so that a retry gets the very same answer."""
    story = script.tell(conversation, marker)
    reply = next(story)
    turns = iter(conversation.turns)
    try:
        while True:
            kept = [call for call in reply.calls if not script.offered_only or call.name in conversation.tools]
            if kept or not reply.calls:
                turn = next(turns, None)
                if turn is None:
                    return replace(reply, calls=tuple(kept), delay=reply.delay or script.delay)
                returned = iter(turn.results)
            else:
                returned = iter([])
            reply = story.send([_result(call, returned if call in kept else iter([])) for call in reply.calls])
    except StopIteration:
        return replace(reply, delay=reply.delay or script.delay)


def _result(call: Call, returned: Iterator[Result]) -> Result:
    missing = Result(call.name, call.input, f"The tool {call.name} is not available here.", is_error=True)
    return next(returned, missing)
