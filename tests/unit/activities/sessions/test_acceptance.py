"""What the verdicts on a task's criteria and constraints lead to."""

from typing import Any, cast

import pytest
from errand.models import Verdict

from activities.sessions.acceptance import NO_VERDICT, AcceptanceChecks
from domain.sessions.session import SessionRef, Usage

ROUNDS = 3


class Check:
    ref = SessionRef(tenant="t", session_id="s", conversation_id="s")
    usage = Usage()

    def __init__(self, round: int) -> None:
        self.round = round


@pytest.mark.parametrize(
    ("kind", "passed", "why", "round", "violated", "again"),
    [
        ("constraint", False, "It wrote the file.", 1, True, False),
        ("constraint", False, NO_VERDICT, 1, False, True),  # the judge's reply was cut off: nothing was shown
        ("constraint", False, NO_VERDICT, ROUNDS, False, False),
        ("constraint", True, "Kept.", 1, False, False),
        ("text", False, "Not there.", 1, False, True),
        ("text", False, "Not there.", ROUNDS, False, False),
        ("command", False, "exit code 1", 1, False, True),
    ],
)
def test_only_a_verdict_shows_a_violation(
    kind: Any, passed: bool, why: str, round: int, violated: bool, again: bool
) -> None:
    checks = AcceptanceChecks(*cast(Any, [*[None] * 7]))
    verdicts = [Verdict(kind=kind, criterion="c", passed=passed, why=why)]
    found = checks._verdict(cast(Any, Check(round)), verdicts, Usage())
    assert (found.passed, found.violated, found.message is not None) == (passed, violated, again)
