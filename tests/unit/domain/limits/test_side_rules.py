"""The stop rules of a side, as a table: which rule decides, in which order."""

import pytest

from domain.agents.definition import Binding, Side
from domain.limits import SideDecision, SideVerdict, judge_response

FAIL, STOP, STATUS = Binding(name="fail"), Binding(name="approve"), Binding(name="status")
SIDE = Side(prompt="p", session_fail=FAIL, session_stop=STOP, session_status=STATUS, stop_tool="done", max_steps=3)
PATIENT = SIDE.model_copy(update={"stop_on_response": False})
BARE = Side(prompt="p")


@pytest.mark.parametrize(
    ("side", "calls", "steps", "turns", "expected"),
    [
        # bindings that end the session come first, and a failure beats a success
        (SIDE, ["approve"], 1, 0, (SideVerdict.STOP_SESSION, 0)),
        (SIDE, ["fail"], 1, 0, (SideVerdict.FAIL_SESSION, 0)),
        (SIDE, ["approve", "fail"], 1, 0, (SideVerdict.FAIL_SESSION, 1)),
        (SIDE, ["read", "approve"], 1, 0, (SideVerdict.STOP_SESSION, 1)),
        (SIDE, ["done", "approve"], 1, 0, (SideVerdict.STOP_SESSION, 1)),
        # also at a limit
        (SIDE, ["fail"], 3, 9, (SideVerdict.FAIL_SESSION, 0)),
        (SIDE, ["approve"], 3, 9, (SideVerdict.STOP_SESSION, 0)),
        # a status binding ends nothing
        (SIDE, ["status"], 1, 0, (SideVerdict.ACT, None)),
        # then the stop tool, also beside other calls
        (SIDE, ["done"], 1, 0, (SideVerdict.END_TURN, 0)),
        (SIDE, ["read", "done"], 1, 0, (SideVerdict.END_TURN, 1)),
        (SIDE, ["done"], 3, 0, (SideVerdict.END_TURN, 0)),
        # then a response without calls
        (SIDE, [], 1, 0, (SideVerdict.END_TURN, None)),
        (SIDE, [], 3, 0, (SideVerdict.END_TURN, None)),
        (PATIENT, [], 1, 0, (SideVerdict.ACT, None)),
        (BARE, ["read"], 1, 0, (SideVerdict.ACT, None)),
        # then the limits
        (SIDE, ["read"], 3, 0, (SideVerdict.STEP_LIMIT, None)),
        (PATIENT, [], 3, 0, (SideVerdict.STEP_LIMIT, None)),
        (SIDE, ["read"], 2, 9, (SideVerdict.ACT, None)),
        (SIDE, [], 1, 9, (SideVerdict.TURN_LIMIT, None)),
        (SIDE, ["done"], 1, 9, (SideVerdict.TURN_LIMIT, 0)),
        (SIDE, [], 1, 8, (SideVerdict.END_TURN, None)),
    ],
)
@pytest.mark.proves("S4-08")
def test_stop_rules_are_judged_in_the_order_of_the_standard(
    side: Side, calls: list[str], steps: int, turns: int, expected: tuple[SideVerdict, int | None]
) -> None:
    decision = judge_response(side, calls, steps=steps, turns=turns, max_session_turns=10)
    assert decision == SideDecision(*expected)


def test_without_a_cap_turns_never_end_the_session() -> None:
    decision = judge_response(BARE, [], steps=1, turns=10_000, max_session_turns=None)
    assert decision.verdict is SideVerdict.END_TURN
