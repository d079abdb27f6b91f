"""What every contestant does: N times model and tool, each result a kilobyte of context, then a last model call."""

import base64
import random
from typing import NamedTuple

PROMPT = "Take {} steps."


class Done(NamedTuple):
    """One whole loop: how many results its last model call saw, and its workflow, if it has one in Temporal."""

    steps: int
    workflow_id: str | None = None


def prompt(steps: int) -> str:
    return PROMPT.format(steps)


def wanted(text: str) -> int:
    """How many steps a prompt asks for."""
    return int(text.split()[1])


def result(number: int) -> str:
    """A kilobyte that no database can compress away, the same for the same step."""
    return base64.b64encode(random.Random(number).randbytes(768)).decode()
