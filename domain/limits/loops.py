"""Loop detection: an agent that repeats itself without effect is warned, then stopped.

Steps are compared by a digest of their calls and results, so polling with changing results is not a loop. Neither is
waiting: a step whose tools took a while, or one that polls subagents, starts a new trail.
"""

import hashlib
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from domain.sessions.step import ToolOutcome

WAITED_SECONDS = 10.0  # tools that took this long were waiting for something
LONGEST_PERIOD = 3  # steps that alternate: A B A B, A B C A B C
STALE = 3  # this many steps without anything new, in any order, count as one repetition

WARNING = (
    "You have made the same calls with the same results several times; nothing new has come of it. Do something else: "
    "change the arguments, try another tool, or answer with what you have. If this continues, the session is ended."
)


class LoopVerdict(StrEnum):
    FINE = "fine"
    WARN = "warn"
    BREAK = "break"


def call_digest(tool: str, arguments: Any, state: str, text: str) -> str:
    content = json.dumps([tool, arguments, state, text], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def extended(trail: list[str], outcomes: Sequence[ToolOutcome], waited: float, repeats: int) -> list[str]:
    """The trail with one more step; empty after a step that cannot count as a repetition."""
    digests = [outcome.digest for outcome in outcomes]
    if not digests or None in digests or waited >= WAITED_SECONDS:
        return []
    step = "".join(sorted(str(digest) for digest in digests))
    token = hashlib.sha256(step.encode()).hexdigest()[:12]
    return [*trail, token][-2 * STALE * repeats :]


def judge(trail: Sequence[str], warning: int, repeats: int) -> LoopVerdict:
    seen = repetitions(trail)
    if seen >= repeats:
        return LoopVerdict.BREAK
    return LoopVerdict.WARN if seen >= warning > repetitions(trail[:-1]) else LoopVerdict.FINE


def repetitions(trail: Sequence[str]) -> int:
    """How often the newest steps were repeated: in a row, alternating, or in any order without anything new."""
    rounds = max((_rounds(trail, period) for period in range(1, LONGEST_PERIOD + 1)), default=0)
    return max(rounds, _stale(trail) // STALE)


def _rounds(trail: Sequence[str], period: int) -> int:
    """How many times the last `period` steps are repeated at the end of the trail."""
    newest = trail[::-1]
    pattern = newest[:period]
    count = 0
    while len(pattern) == period and newest[count * period : (count + 1) * period] == pattern:
        count += 1
    return count


def _stale(trail: Sequence[str]) -> int:
    """How many of the newest steps are repetitions of earlier ones."""
    count = 0
    for index in range(len(trail) - 1, 0, -1):
        if trail[index] not in trail[:index]:
            break
        count += 1
    return count
