"""The judge of acceptance criteria: each holds if all it says in double quotes stands in the answer or a result."""

import re

from offline.conversation import Conversation
from offline.reply import Call, Reply

VERDICT = "give_verdict"
_CRITERIA = re.compile(r"<criteria>\n(.*)\n</criteria>", re.DOTALL)
_EVIDENCE = re.compile(r"<tool_results>.*?</answer>", re.DOTALL)
_QUOTED = re.compile(r'"([^"]+)"')
_NUMBERED = re.compile(r"^\d+\. (.*)$", re.MULTILINE)


def judged(conversation: Conversation) -> Reply:
    criteria, evidence = _CRITERIA.search(conversation.request), _EVIDENCE.search(conversation.request)
    shown = evidence[0] if evidence else ""
    verdicts = [_verdict(line, shown) for line in _NUMBERED.findall(criteria[1] if criteria else "")]
    return Reply(calls=(Call(VERDICT, {"verdicts": verdicts}),))


def _verdict(criterion: str, shown: str) -> dict[str, object]:
    missing = [words for words in _QUOTED.findall(criterion) if words not in shown]
    why = f"It nowhere says {missing[0]}." if missing else "Nothing speaks against it."
    return {"met": not missing, "why": why}
