"""The loop of every contestant: N times model and tool, each result a kilobyte of context, then a last model call."""

import base64
import random
import re
from typing import NamedTuple

PROMPT = '[[script:count n={} tool=look input={{"number": 0}}]]'
_COUNTED = re.compile(r"Counted (\d+) steps")


class Done(NamedTuple):
    """One whole loop: how many results its last model call saw, and its workflow, if it has one in Temporal."""

    steps: int
    workflow_id: str | None = None


def prompt(steps: int) -> str:
    """The script that the offline model follows."""
    return PROMPT.format(steps)


def counted(answer: str) -> int:
    """The number of results in the model's last request, from its answer."""
    found = _COUNTED.match(answer)
    return int(found[1]) if found else 0


def result(number: int) -> str:
    """A kilobyte that no database can compress away, the same for the same step."""
    return base64.b64encode(random.Random(number).randbytes(768)).decode()
