"""Steps whose calls name what earlier ones started, then all results whole: [[script:chain json=[[{...}]] text="..."]].

In the input of a call `$0`, `$1`, … stand for the session ids in the first result, the second, and so on. With `text`
the first reply says it beside its calls; with `last` that is the answer, else the results are, one after the other.
"""

import re
from typing import Any

from offline.conversation import Conversation, Result
from offline.markers import Marker
from offline.reply import Call, Reply, Story
from offline.scripts.steps import calls_of

BETWEEN = "\n=====\n"
_ID = re.compile(r"(?:task_id|session): ([0-9A-Za-z_-]+)")


def tell(conversation: Conversation, marker: Marker) -> Story:
    results: list[Result] = []
    text = marker.text("text")
    for listed in marker.options.get("json") or []:
        calls = tuple(Call(call.name, _named(call.input, results)) for call in calls_of(marker, listed))
        results += yield Reply(text=text, calls=calls)
        text = ""
    answer = marker.text("last") or BETWEEN.join(result.text for result in results) or "There was nothing to call."
    yield Reply(text=answer, delay=marker.number("delay", 0))


def _named(value: Any, results: list[Result]) -> Any:
    if isinstance(value, dict):
        return {name: _named(inner, results) for name, inner in value.items()}
    if isinstance(value, list):
        return [_named(inner, results) for inner in value]
    if isinstance(value, str):
        return re.sub(r"\$(\d+)", lambda match: _id(results[int(match[1])]), value)
    return value


def _id(result: Result) -> str:
    found = _ID.search(result.text)
    return found[1] if found else "none"
