"""When a mission ends, what its next run may use, and which calls its risks concern."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from domain.missions import Mission, MissionRules, MissionStatus, RiskTrigger, Spent, mission_mark, mission_of

NOW = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)


def mission(**rules: Any) -> Mission:
    return Mission(
        tenant="t",
        id="m",
        name="watch",
        schedule_id="s",
        conversation_id="c",
        rules=MissionRules.model_validate({"total": {"runs": 100}, **rules}),
        timezone="Europe/Berlin",
        created_by="",
        created_at=NOW,
    )


@pytest.mark.parametrize(
    ("rules", "spent", "answer", "status"),
    [
        ({}, {}, None, None),
        ({"expires_at": (NOW + timedelta(seconds=1)).isoformat()}, {}, None, None),
        ({"expires_at": NOW.isoformat()}, {}, None, MissionStatus.EXPIRED),
        ({}, {"runs": 100}, None, MissionStatus.OUT_OF_BUDGET),
        ({"total": {"cost_usd": 2}}, {"cost_usd": 2.0}, None, MissionStatus.OUT_OF_BUDGET),
        ({"total": {"tokens": 5}}, {"tokens": 4}, None, None),
        ({"stop_after_failures": 2}, {"failures": 2}, None, MissionStatus.STOPPED),
        ({"stop_when_answer": "^DONE$"}, {}, "DONE", MissionStatus.STOPPED),
        ({"stop_when_answer": "^DONE$"}, {}, "not DONE", None),
    ],
)
def test_mission_ends_by_time_budget_or_its_conditions(
    rules: dict[str, Any], spent: dict[str, Any], answer: str | None, status: MissionStatus | None
) -> None:
    over = mission(**rules).find_end(NOW, Spent(**spent), answer)
    assert (over and over[0]) == status


def test_run_may_use_what_is_left_of_the_day_and_of_the_total() -> None:
    bounded = mission(per_day={"cost_usd": 2, "tokens": 100}, total={"cost_usd": 10})
    today, total, conversation = Spent(cost_usd=0.5, tokens=30), Spent(cost_usd=9.0), Spent(cost_usd=9.0, tokens=500)
    budget = bounded.run_budget(today, total, conversation)
    assert (budget.max_cost_usd, budget.max_tokens) == (10.0, 570)
    assert bounded.run_budget(today, Spent(), Spent()).max_cost_usd == 1.5
    assert mission().run_budget(today, total, conversation).max_cost_usd is None


def test_day_of_a_mission_begins_at_midnight_of_its_zone() -> None:
    assert mission().day_start(NOW) == datetime(2026, 3, 29, 22, 0, tzinfo=UTC)  # the clock was set forward that day


@pytest.mark.parametrize(
    ("risk", "tool", "arguments", "found"),
    [
        ({"tool": "bash"}, "bash", {"command": "ls"}, True),
        ({"tool": "bash"}, "fetch_url", {}, False),
        ({"argument": "*push*"}, "bash", {"command": "git push origin"}, True),
        ({"argument": "*push*"}, "bash", {"command": "git status"}, False),
        ({"argument": "secret"}, "x", {"deep": [{"a": "secret"}]}, True),
        ({"argument": "3"}, "x", {"n": 3}, True),
        ({"tool": "*"}, "x", {}, True),
    ],
)
def test_risk_concerns_calls_by_tool_and_argument(
    risk: dict[str, Any], tool: str, arguments: dict[str, Any], found: bool
) -> None:
    assert RiskTrigger.model_validate(risk).concerns(tool, arguments) is found


def test_mission_without_any_bound_is_refused() -> None:
    with pytest.raises(ValidationError, match="total budget"):
        MissionRules.model_validate({"per_day": {"runs": 1}})


def test_mark_of_a_mission_is_found_in_inherited_rules() -> None:
    assert mission_of([[], mission_mark("m1")]) == "m1" and mission_of([[]]) is None
