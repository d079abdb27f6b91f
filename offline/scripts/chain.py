"""Steps whose calls can use ids from earlier results, then all results: [[script:chain json=[[{...}]] text="..."]].

In the input of a call `$0`, `$1`, … are replaced by the session ids in the first result, the second, and so on. `text`
is the text of the first reply; `last` is the answer, and without it the answer is all results, one after the other.
"""

import re
from typing import Any

from offline.markers import Marker
from offline.reply import Replies, Reply, ToolUse
from offline.scripts.steps import calls_of
from offline.transcript import CallResult, Transcript

BETWEEN = "\n=====\n"
_ID = re.compile(r"(?:task_id|session|reference): ([0-9A-Za-z_-]+)")


def replies(transcript: Transcript, marker: Marker) -> Replies:
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
        return re.sub(r"\$(\d+)", lambda match: _id(results[int(match[1])]), value)
    return value


def _id(result: CallResult) -> str:
    found = _ID.search(result.text)
    return found[1] if found else "none"
