"""When a side's turn, or the whole session, is over: the rules of an agent's side, in the order of the standard."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from domain.agents.side import Binding, Side


class SideVerdict(StrEnum):
    FAIL_SESSION = "fail_session"  # the session_fail tool was called
    STOP_SESSION = "stop_session"  # the session_stop tool was called
    END_TURN = "end_turn"  # the other side continues
    STEP_LIMIT = "step_limit"  # this side has used all of its steps
    TURN_LIMIT = "turn_limit"  # the turn is over, and the session has no further one
    ACT = "act"  # the side continues: its tools run, or it is asked again


@dataclass(frozen=True)
class SideDecision:
    verdict: SideVerdict
    call: int | None = None  # the index of the call that decided


def after_response(
    side: Side,
    calls: Sequence[str],
    *,
    ends: Literal["stop", "fail"] | None = None,
    steps: int,
    turns: int,
    max_session_turns: int | None,
) -> SideDecision:
    """Judge one response of a side, given the names of its tool calls in order.

    A handler's reply may end the session without a tool (`ends`), which counts like a call of the bound tool.
    `steps` are those the side has taken in this session with this one, `turns` the completed turns of the session.
    The order is that of the standard: bindings that end the session (a failure before a success), the side's stop tool,
    a response without calls, then the safety limits. So a response that fails the session and also reaches a limit has
    failed it.
    """
    for verdict, binding, word in (
        (SideVerdict.FAIL_SESSION, side.session_fail, "fail"),
        (SideVerdict.STOP_SESSION, side.session_stop, "stop"),
    ):
        index = _called(calls, binding)
        if index is not None or ends == word:
            return SideDecision(verdict, index)
    ends_turn = False
    stopping_call = None
    if side.stop_tool is not None and side.stop_tool in calls:
        ends_turn, stopping_call = True, list(calls).index(side.stop_tool)
    elif side.stop_on_response and not calls:
        ends_turn = True
    if ends_turn:
        last = max_session_turns is not None and turns + 1 >= max_session_turns
        return SideDecision(SideVerdict.TURN_LIMIT if last else SideVerdict.END_TURN, stopping_call)
    if side.max_steps is not None and steps >= side.max_steps:
        return SideDecision(SideVerdict.STEP_LIMIT)
    return SideDecision(SideVerdict.ACT)


def _called(calls: Sequence[str], binding: Binding | None) -> int | None:
    return list(calls).index(binding.name) if binding is not None and binding.name in calls else None
