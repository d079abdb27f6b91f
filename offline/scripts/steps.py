"""Makes several replies of tool calls, then gives the results: [[script:steps json=[[{"name", "input"}], [...]]]]."""

from typing import Any

from offline.markers import Marker, MarkerError
from offline.reply import Replies, Reply, ToolUse
from offline.transcript import CallResult, Transcript


def replies(transcript: Transcript, marker: Marker) -> Replies:
    results: list[CallResult] = []
    for calls in _listed(marker, marker.options.get("json")):
        results += yield Reply(calls=calls_of(marker, calls))
    yield Reply(text=quoted(results))


def calls_of(marker: Marker, listed: Any) -> tuple[ToolUse, ...]:
    calls = _listed(marker, listed)
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        raise MarkerError(f'{marker.raw[:80]}: each call must be {{"name": ..., "input": {{...}}}}')
    return tuple(ToolUse(call["name"], call.get("input") or {}) for call in calls)


def quoted(results: list[CallResult]) -> str:
    lines = [f"{r.name} {'failed' if r.is_error else 'returned'}: {r.text[:500]}" for r in results]
    return "\n".join(lines) or "There was nothing to call."


def _listed(marker: Marker, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MarkerError(f"{marker.raw[:80]}: json=[...] is needed")
    return value
