"""The worker begins a step from its memory only if the store would show it the same."""

import pytest

from activities.runtime.fresh_steps import FreshSteps
from domain.limits.budget import TreeBudget
from domain.sessions.session import Status
from domain.sessions.step import CallState, Purpose, ToolCallResult
from domain.sessions.step_writes import StepBegin
from store.messages import StepFacts

FACTS = StepFacts(status=Status.WORKING, results=[ToolCallResult(index=0, state=CallState.OK, text="seen")])


def begin(**more: object) -> StepBegin:
    known = {"tenant": "t", "session_id": "s", "run": "r", "idem": "i", "version": 3, "step": 2, "attempt": 1}
    return StepBegin.model_validate({**known, "head": "n", **more})


def remembered(**changes: object) -> FreshSteps:
    fresh = FreshSteps()
    fresh.remember("t", "n", "r", FACTS.model_copy(update=changes))
    return fresh


def test_the_next_model_call_gets_the_facts_once() -> None:
    fresh = remembered()
    assert fresh.take(begin()) == FACTS
    assert fresh.take(begin()) is None


@pytest.mark.parametrize(
    "other",
    [
        {"attempt": 2},
        {"take": ["a message"]},
        {"purpose": Purpose.COMPACT},
        {"purpose": Purpose.SUMMARY},
        {"run": "after a reset"},
        {"run": None},
        {"tenant": "another"},
        {"head": "another"},
        {"head": None},
    ],
)
def test_the_store_is_asked_by_every_other_call(other: dict[str, object]) -> None:
    assert remembered().take(begin(**other)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": Status.INPUT_REQUIRED},
        {"status": Status.COMPLETED},
        {"cancel_requested": "{}"},
        {"rerun": "{}"},
        {"tree": TreeBudget.model_construct()},
    ],
)
def test_the_store_is_asked_if_it_decides_about_the_call(changes: dict[str, object]) -> None:
    assert remembered(**changes).take(begin()) is None
