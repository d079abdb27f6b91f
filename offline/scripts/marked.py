"""Scripts that a marker in the request names, such as [[script:echo]]; tests and samples use them."""

import itertools
import re
import sys
from typing import Any

from offline.markers import Marker, MarkerError, without_markers
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.demo import files_in, format_count, list_files, progress, write_file
from offline.transcript import CallResult, Transcript, files_seen


def say(transcript: Transcript, marker: Marker) -> Replies:
    """Answers with a text, slowly if asked to: [[script:say text="..." words=N delay=SECONDS stop=STOP_REASON]].

    `thought` is what it thinks before, if thinking is enabled.
    """
    numbered = " ".join(f"word{number}" for number in range(1, marker.count("words", 0) + 1))
    yield Reply(
        text=marker.text("text") or numbered or "Said.",
        thinking=marker.text("thought"),
        delay=marker.number("delay", 0),
        stop_reason=marker.text("stop") or None,
    )


def echo(transcript: Transcript, marker: Marker) -> Replies:
    """Answers with the user's own text."""
    yield Reply(text=without_markers(transcript.request) or "(nothing but markers)")


def see(transcript: Transcript, marker: Marker) -> Replies:
    """Says which pictures and documents it was shown: their types and hashes, in order."""
    yield Reply(text="\n".join(files_seen(transcript.messages)) or "I see no file.")


def take_steps(transcript: Transcript, marker: Marker) -> Replies:
    """Makes several replies of tool calls, then all results: [[script:steps json=[[{"name", "input"}], [...]]]], or of
    one reply [[script:tools json=[{"name", "input"}]]]."""
    given = marker.options.get("json")
    results: list[CallResult] = []
    for calls in [given] if marker.name == "tools" else _listed(marker, given):
        results += yield Reply(calls=calls_of(marker, calls))
    lines = [f"{r.name} {'failed' if r.is_error else 'returned'}: {r.text[:500]}" for r in results]
    yield Reply(text="\n".join(lines) or "There was nothing to call.")


def calls_of(marker: Marker, listed: Any) -> tuple[ToolUse, ...]:
    calls = _listed(marker, listed)
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        raise MarkerError(f'{marker.raw[:80]}: each call must be {{"name": ..., "input": {{...}}}}')
    return tuple(ToolUse(call["name"], call.get("input") or {}) for call in calls)


def _listed(marker: Marker, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MarkerError(f"{marker.raw[:80]}: json=[...] is needed")
    return value


BETWEEN = "\n=====\n"
_ID = re.compile(r"(?:task_id|session|reference): ([0-9A-Za-z_-]+)")


def chain_steps(transcript: Transcript, marker: Marker) -> Replies:
    """Steps whose calls can use ids from earlier results, then all results: [[script:chain json=[[{...}]] text="..."]].

    In the input of a call `$0`, `$1`, … are replaced by the session ids in the first result, the second, and so on.
    `text` is the text of the first reply; `last` is the answer, and without it the answer is all results in order.
    """
    results: list[CallResult] = []
    text = marker.text("text")
    for listed in marker.options.get("json") or []:
        calls = tuple(ToolUse(call.name, _with_ids(call.input, results)) for call in calls_of(marker, listed))
        results += yield Reply(text=text, calls=calls)
        text = ""
    answer = marker.text("last") or BETWEEN.join(result.text for result in results) or "There was nothing to call."
    yield Reply(text=answer, delay=marker.number("delay", 0))


def _with_ids(value: Any, results: list[CallResult]) -> Any:
    if isinstance(value, dict):
        return {name: _with_ids(inner, results) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_ids(inner, results) for inner in value]
    if isinstance(value, str):
        return re.sub(r"\$(\d+)", lambda match: _session_id(results[int(match[1])]), value)
    return value


def _session_id(result: CallResult) -> str:
    found = _ID.search(result.text)
    return found[1] if found else "none"


INPUTS = {"list_files": {"path": "."}, "bash": {"command": "true"}, "report_progress": {"message": "counting"}}
_LINE = "The quick brown fox jumps over the lazy dog and runs on to the next long line.\n"


def count_steps(transcript: Transcript, marker: Marker) -> Replies:
    """Takes n steps of one tool call each, then answers: [[script:count n=3 tool=list_files input={} grow=BYTES]].

    With `grow` the first step writes a file of that size and every later step reads it, so that the context grows.
    Steps that a summary has replaced are counted too. [[script:forever tool=NAME]] ends by a limit only.
    """
    endless = marker.name == "forever"
    steps = sys.maxsize if endless else marker.count("n", 3)
    last = ""
    # a long session has many steps, and of those that are done only the last result is needed
    skipped = max(0, min(len(transcript.pairs), steps - transcript.done_before) - 1)
    for number in range(transcript.done_before + skipped + 1, steps + 1):
        [result] = yield Reply(
            text=f"Round {number}." if endless else f"Step {number} of {steps}.",
            calls=(_counting_call(number, marker, "report_progress" if endless else "list_files"),),
            skipped=skipped,
        )
        last = result.text
    yield Reply(
        text=f"Counted {format_count(steps, 'step')}." + (f" The last result was: {last[:200]}" if last else "")
    )


def _counting_call(number: int, marker: Marker, usual: str) -> ToolUse:
    if size := marker.count("grow", 0):
        if number == 1:
            return ToolUse("write_file", {"path": "grow.txt", "content": (_LINE * (size // len(_LINE) + 1))[:size]})
        return ToolUse("read_file", vary_input("read_file", {"path": "grow.txt"}, number))
    tool = marker.text("tool", usual)
    return ToolUse(tool, vary_input(tool, marker.options.get("input") or INPUTS.get(tool, {}), number))


def repeat(transcript: Transcript, marker: Marker) -> Replies:
    """Repeats the same replies: [[script:repeat json=[[{"name", "input"}], [...]] n=ROUNDS]]; without n, forever."""
    rounds = marker.count("n", 0)
    for number in itertools.count(1):
        for listed in marker.options.get("json") or [[]]:
            yield Reply(text=f"Round {number}.", calls=calls_of(marker, listed))
        if number == rounds:
            break
    yield Reply(text=f"Repeated {format_count(rounds, 'time')}.")


def take_turns(transcript: Transcript, marker: Marker) -> Replies:
    """Replies by number, whatever others say: [[script:turns json=[{"text": "...", "calls": [...]}]]].

    The last is repeated. In the prompt of each side of an agent, each side has its own script.
    """
    listed = marker.options.get("json")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise MarkerError(f"{marker.raw}: json must be a list of replies")
    chosen = listed[min(transcript.assistant_messages, len(listed) - 1)]
    calls = tuple(calls_of(marker, chosen.get("calls") or []))
    while True:  # a request with tool results belongs to the same reply
        yield Reply(text=str(chosen.get("text") or ""), calls=calls, delay=marker.number("delay", 0))


# Varying a repeated call a little, so that it does not count as a loop.


def vary_input(tool: str, given: dict[str, Any], number: int) -> dict[str, Any]:
    """The input with a harmless difference; unchanged for tools that have none."""
    if tool == "bash" and "command" in given:
        return {**given, "command": f"{given['command']} # {number}"}
    if tool == "list_files":
        return {**given, "path": "/".join([str(given.get("path", ".")), *["."] * (number % 100)])}
    if tool == "read_file":
        return {**given, "limit": 1_000 + number % 4_000}
    if tool == "report_progress":
        return {"message": f"{given.get('message', 'Round')} {number}"}
    if tool == "write_file" and "content" in given:
        return {**given, "content": f"{given['content']} {number}"}
    if "number" in given:
        return {**given, "number": number}
    return given


_PIECES = 14  # a reply is streamed in about so many pieces


def work_slowly(transcript: Transcript, marker: Marker) -> Replies:
    """Keeps a log book slowly, so that there is time to kill something: [[script:slow seconds=90 steps=12]]."""
    steps = max(1, marker.count("steps", 12))
    delay = marker.number("seconds", 90) / steps / _PIECES
    for hour in range(1, steps + 1):
        path = f"log/hour-{hour:02}.md"
        yield Reply(
            text=f"Hour {hour}: the lamp is trimmed and the sea is calm. I write it into the log book.",
            calls=(
                write_file(path, f"Hour {hour}: lamp trimmed, sea calm.\n"),
                progress(f"Hour {hour} of {steps}", 100 * hour // steps),
            ),
            delay=delay,
        )
    [listing] = yield Reply(text="I read through the log book.", calls=(list_files("log"),))
    yield Reply(text=f"The log book has {format_count(len(files_in(listing)), 'entry').replace('entrys', 'entries')}.")


def explain(transcript: Transcript, marker: Marker) -> Replies:
    """The answer to a request without a script: it explains the stand-in and how to connect a real model."""
    yield Reply(text=honest_answer(transcript))


def honest_answer(transcript: Transcript) -> str:
    asked = " ".join(transcript.request.split())
    seen = [f'your request, "{asked[:200]}{"…" if len(asked) > 200 else ""}"']
    seen.append(f"{len(transcript.tools)} tools" if transcript.tools else "no tools")
    if transcript.notes:
        seen.append(f"{format_count(len(transcript.notes), 'further message')}")
    return (
        "This is the offline stand-in, not a language model: it answers from scripts, and none of them knows "
        f"this request. It saw {', '.join(seen)}.\n\n"
        "Requests it can really work on: ask the assistant for a program that computes primes, for a look around the "
        "workspace, or to ask the researcher something; give the researcher a question about lighthouses or files in "
        "the workspace; give the code-reviewer some code; give the orchestrator files."
        "\n\nTo connect a real model, set ANTHROPIC_API_KEY or OPENAI_API_KEY (or the address of another endpoint with "
        "one of these APIs, as docs/agents.md has it) and start again."
    )


def follow_up(transcript: Transcript, marker: Marker) -> Replies:
    """Answers a later message in a conversation that began with a script, by quoting the last answer."""
    message = " ".join(transcript.request.split())[:300]
    yield Reply(text=f"You wrote: {message}\n\nMy last answer is still: {transcript.last_answer}")
