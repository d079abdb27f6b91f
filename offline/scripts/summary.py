"""The answer if no tools are offered: a summary of what the tools returned so far."""

from offline.markers import without_markers
from offline.transcript import CallResult, Transcript

_SHOWN = 12


def summary(transcript: Transcript) -> str:
    results = transcript.results
    done = transcript.done_before + len(results)
    # the whole request, with its script marker: after a compaction this text may be all that is left
    request = without_markers(transcript.first, ("fault",))[:4_000]
    lines = [f"Summary: {done} tool call{'' if done == 1 else 's'} so far.", "", f"The request was: {request}"]
    if results:
        lines += ["", "What the latest calls returned:", *map(_line, results[-_SHOWN:])]
    return "\n".join(lines)


def _line(result: CallResult) -> str:
    text = " ".join(result.text.split())
    return f"- {result.name} ({'failed' if result.is_error else 'ok'}): {text[:120] or '(no output)'}"
