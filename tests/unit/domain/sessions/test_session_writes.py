"""The budget of a turn in a mission: the lower of each limit of the mission and of the caller."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.sessions.writes import NewBudget

SOON = datetime(2030, 1, 1, tzinfo=UTC)
LOWER: dict[str, tuple[Any, Any]] = {
    "deadline": (SOON, SOON + timedelta(days=1)),
    "max_steps": (3, 4),
    "max_tokens": (100, 200),
    "max_cost_usd": (0.1, 0.2),
    "max_tool_calls": (1, 2),
    "max_sessions": (5, 6),
}


def test_table_has_every_limit() -> None:
    assert LOWER.keys() == NewBudget.model_fields.keys() - {"low_percent", "default"}


@pytest.mark.parametrize("name", LOWER)
def test_lower_limit_of_two_budgets_holds(name: str) -> None:
    low, high = LOWER[name]
    for own, other, held in (
        (low, high, low),
        (high, low, low),
        (None, low, low),
        (low, None, low),
        (None, None, None),
    ):
        mine, theirs = NewBudget.model_validate({name: own}), NewBudget.model_validate({name: other, "low_percent": 7})
        assert mine.within(theirs) == NewBudget.model_validate({name: held, "low_percent": 7}), (own, other)


@pytest.mark.parametrize("name", LOWER)
def test_ceilings_of_the_platform_and_no_budget_change_nothing(name: str) -> None:
    low, high = LOWER[name]
    own = NewBudget(**{name: high}, low_percent=9)
    assert own.within(NewBudget(**{name: low}, default=True)) == own.within(None) == own
