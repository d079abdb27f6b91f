"""The reply of a script, and running a script against a transcript."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

from offline.markers import Marker
from offline.transcript import CallResult, Transcript


class ToolUse(NamedTuple):
    """A tool call that a script makes."""

    name: str
    input: dict[str, Any]


class Reply(NamedTuple):
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    thinking: str = ""
    delay: float = 0  # seconds between two deltas of the stream
    stop_reason: str | None = None  # None: tool_use with calls, else end_turn
    skipped: int = 0  # set in a script's first reply: number of earlier replies that the script leaves out


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
    rounds = transcript.rounds(reply.skipped)
    try:
        while True:
            made = reply.calls
            if script.offered_only:
                made = tuple(call for call in made if call.name in transcript.tools)
            results: list[CallResult] = []
            if made or not reply.calls:
                returned = next(rounds, None)
                if returned is None:
                    return reply._replace(calls=made, delay=reply.delay or script.delay)
                results = returned
            reply = replies.send(_results(reply.calls, made, results))
    except StopIteration:
        return reply._replace(delay=reply.delay or script.delay)


def _results(calls: tuple[ToolUse, ...], made: tuple[ToolUse, ...], returned: list[CallResult]) -> list[CallResult]:
    """A result for each call, in their order; an error for a call without one."""
    if len(calls) == len(made) == len(returned):
        return returned
    remaining = iter(returned)
    return [next(remaining, _missing(call)) if call in made else _missing(call) for call in calls]


def _missing(call: ToolUse) -> CallResult:
    return CallResult(call.name, call.input, f"The tool {call.name} is not available here.", is_error=True)
