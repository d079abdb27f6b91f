"""Loop detection finds every form of repetition without effect, and ignores polling, waiting and progress."""

from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.limits import WAITED_SECONDS, LoopVerdict, call_digest, count_repetitions, extend_trail, judge_trail
from domain.sessions.session import ToolOutcome

WARNING, LIMIT = 4, 8
TOKENS = st.lists(st.sampled_from("abcdef"), max_size=60)


def outcome(tool: str, given: object = None, text: str = "same", state: str = "ok") -> ToolOutcome:
    return ToolOutcome(index=0, name=tool, digest=call_digest(tool, given, state, text))


def walk(*steps: list[ToolOutcome], seconds: float = 0.1) -> list[LoopVerdict]:
    """The verdict of the loop detection after each step."""
    trail: list[str] = []
    found = []
    for outcomes in steps:
        trail = extend_trail(trail, outcomes, seconds, LIMIT)
        found.append(judge_trail(trail, WARNING, LIMIT))
    return found


def test_the_same_call_with_the_same_result_is_warned_then_stopped() -> None:
    found = walk(*[[outcome("bash", "ls")]] * 10)
    assert found[:3] == [LoopVerdict.FINE] * 3 and found[3] is LoopVerdict.WARN
    assert found[4:7] == [LoopVerdict.FINE] * 3 and found[7] is LoopVerdict.BREAK


@pytest.mark.parametrize("period", [2, 3])
def test_steps_that_alternate_are_a_loop(period: int) -> None:
    steps = [[outcome("bash", number)] for number in range(period)]
    found = walk(*islice(cycle(steps), LIMIT * period))
    assert found.count(LoopVerdict.WARN) == 1
    assert found[-1] is LoopVerdict.BREAK and LoopVerdict.BREAK not in found[:-1]


def test_repetition_in_any_order_is_a_loop() -> None:
    order = [0, 1, 2, 3, 4] + [3, 1, 4, 0, 2, 2, 0, 4, 1, 3, 0, 3, 1, 2, 4, 2, 1, 0, 4, 3, 4, 0, 1, 3]
    found = walk(*[[outcome("read_file", number)] for number in order])
    assert found[-1] is LoopVerdict.BREAK and LoopVerdict.WARN in found


def test_polling_is_no_loop() -> None:
    changing = [[outcome("bash", "status", f"{number} of 40 done")] for number in range(40)]
    waiting = [[outcome("bash", "sleep 30; status", "pending")]] * 40
    polling = [[ToolOutcome(index=0, name="gather")]] * 40  # no digest
    assert set(walk(*changing)) == {LoopVerdict.FINE}
    assert set(walk(*waiting, seconds=WAITED_SECONDS)) == {LoopVerdict.FINE}
    assert set(walk(*polling)) == {LoopVerdict.FINE}


def test_a_read_between_two_waits_is_no_loop() -> None:
    trail: list[str] = []
    for _ in range(30):
        trail = extend_trail(trail, [outcome("bash", "sleep 30")], 30, LIMIT)
        trail = extend_trail(trail, [outcome("read_file", "log", "pending")], 0.1, LIMIT)
        assert judge_trail(trail, WARNING, LIMIT) is LoopVerdict.FINE


def test_calls_side_by_side_are_one_step_in_any_order() -> None:
    first, second = outcome("bash", 1), outcome("bash", 2)
    assert walk(*[[first, second], [second, first]] * 4)[-1] is LoopVerdict.BREAK


@given(TOKENS)
def test_the_count_never_jumps_and_the_trail_stays_short(tokens: list[str]) -> None:
    trail: list[str] = []
    before = 0
    for token in tokens:
        trail = extend_trail(trail, [outcome("x", token)], 0, LIMIT)
        assert count_repetitions(trail) <= before + 1
        before = count_repetitions(trail)
        assert len(trail) <= 6 * LIMIT
