"""The judge of acceptance criteria: one is met if the answer or a result contains all its double-quoted texts."""

import re

from offline.reply import Reply, ToolUse
from offline.transcript import Transcript

VERDICT = "give_verdict"
_CRITERIA = re.compile(r"<criteria>\n(.*)\n</criteria>", re.DOTALL)
_EVIDENCE = re.compile(r"<tool_results>.*?</answer>", re.DOTALL)
_QUOTED = re.compile(r'"([^"]+)"')
_NUMBERED = re.compile(r"^\d+\. (.*)$", re.MULTILINE)


def judge(transcript: Transcript) -> Reply:
    criteria, evidence = _CRITERIA.search(transcript.request), _EVIDENCE.search(transcript.request)
    shown = evidence[0] if evidence else ""
    verdicts = [_verdict(line, shown) for line in _NUMBERED.findall(criteria[1] if criteria else "")]
    return Reply(calls=(ToolUse(VERDICT, {"verdicts": verdicts}),))


def _verdict(criterion: str, shown: str) -> dict[str, object]:
    missing = [text for text in _QUOTED.findall(criterion) if text not in shown]
    why = f"It nowhere says {missing[0]}." if missing else "Everything it asks for is there."
    return {"met": not missing, "why": why}
