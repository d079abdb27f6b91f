"""The reply of a script, and running a script against a transcript."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from offline.markers import Marker
from offline.transcript import CallResult, Transcript


@dataclass(frozen=True)
class ToolUse:
    """A tool call that a script makes."""

    name: str
    input: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    thinking: str = ""
    delay: float = 0  # seconds between two deltas of the stream
    stop_reason: str | None = None  # None: tool_use with calls, else end_turn


# a script yields replies and receives the results of their calls; its last reply is the answer
Replies = Generator[Reply, list[CallResult], None]
ScriptFunction = Callable[[Transcript, Marker], Replies]


@dataclass(frozen=True)
class Script:
    replies: ScriptFunction
    delay: float = 0
    offered_only: bool = False  # omit calls of tools that the request does not offer


def play(script: Script, transcript: Transcript, marker: Marker) -> Reply:
    """Run the script from its start with the real results, so that a retry gets the same reply."""
    replies = script.replies(transcript, marker)
    reply = next(replies)
    rounds = iter(transcript.rounds)
    try:
        while True:
            kept = [call for call in reply.calls if not script.offered_only or call.name in transcript.tools]
            if kept or not reply.calls:
                results = next(rounds, None)
                if results is None:
                    return replace(reply, calls=tuple(kept), delay=reply.delay or script.delay)
                returned = iter(results)
            else:
                returned = iter([])
            reply = replies.send([_result(call, returned if call in kept else iter([])) for call in reply.calls])
    except StopIteration:
        return replace(reply, delay=reply.delay or script.delay)


def _result(call: ToolUse, returned: Iterator[CallResult]) -> CallResult:
    missing = CallResult(call.name, call.input, f"The tool {call.name} is not available here.", is_error=True)
    return next(returned, missing)
