"""Replies to requests that are no turn of an agent: a summary where no tools are offered, and verdicts on criteria."""

import re

from offline.markers import without_markers
from offline.reply import Reply, ToolUse
from offline.transcript import CallResult, Transcript

_SHOWN = 12


def summarize(transcript: Transcript) -> str:
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


VERDICT = "give_verdict"
_CRITERIA = re.compile(r"<criteria>\n(.*)\n</criteria>", re.DOTALL)
_CONSTRAINTS = re.compile(r"<constraints>\n(.*)\n</constraints>", re.DOTALL)
_EFFECTS = re.compile(r"<effects>.*?</effects>", re.DOTALL)
_EVIDENCE = re.compile(r"<tool_results>.*?</answer>", re.DOTALL)
_QUOTED = re.compile(r'"([^"]+)"')
_NUMBERED = re.compile(r"^\d+\. (.*)$", re.MULTILINE)


def give_verdicts(transcript: Transcript) -> Reply:
    """The judge of acceptance criteria and constraints: a criterion is met if the answer or a result contains all its
    double-quoted texts, a constraint if no effect, result or answer contains any of them.
    """
    criteria, evidence = _CRITERIA.search(transcript.request), _EVIDENCE.search(transcript.request)
    shown = evidence[0] if evidence else ""
    verdicts = [_verdict(line, shown) for line in _NUMBERED.findall(criteria[1] if criteria else "")]
    constraints, effects = _CONSTRAINTS.search(transcript.request), _EFFECTS.search(transcript.request)
    done = shown + (effects[0] if effects else "")
    verdicts += [_kept(line, done) for line in _NUMBERED.findall(constraints[1] if constraints else "")]
    return Reply(calls=(ToolUse(VERDICT, {"verdicts": verdicts}),))


CHOOSE = "choose_attempt"
_ATTEMPT = re.compile(r'<attempt number="(\d)">.*?<patch>\n(.*?)\n</patch>', re.DOTALL)


def choose_attempt(transcript: Transcript) -> Reply:
    """The judge of attempts: the shortest patch is the best, and of two that are as long none is."""
    lengths = sorted((len(patch), int(number)) for number, patch in _ATTEMPT.findall(transcript.request))
    best = lengths[0][1] if len(lengths) < 2 or lengths[0][0] < lengths[1][0] else 0
    why = f"Of all of them attempt {best} is the smallest change." if best else "They are alike."
    return Reply(calls=(ToolUse(CHOOSE, {"number": best, "why": why}),))


def _kept(constraint: str, done: str) -> dict[str, object]:
    found = [line for text in _QUOTED.findall(constraint) for line in done.splitlines() if text in line]
    return {"met": not found, "why": f"This shows it: {found[0]}" if found else "Nothing shows a violation."}


def _verdict(criterion: str, shown: str) -> dict[str, object]:
    missing = [text for text in _QUOTED.findall(criterion) if text not in shown]
    why = f"It nowhere says {missing[0]}." if missing else "Everything it asks for is there."
    return {"met": not missing, "why": why}
