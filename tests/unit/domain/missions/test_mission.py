"""When a mission ends, what its next run may use, and which calls its risks concern."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.missions import HoldKind, MissionRules, MissionStatus, RiskTrigger, Spent
from domain.schedules import Mission, ScheduleRules
from tests.behaviour.store.conftest import NEW

NOW = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)


def mission(**rules: Any) -> Mission:
    bounds = MissionRules.model_validate({"total": {"runs": 100}, **rules})
    return Mission(
        tenant="t",
        id="m",
        conversation_id="c",
        rules=ScheduleRules(name="watch", every=60_000, timezone="Europe/Berlin", mission=bounds),
        session=NEW,
        prompt="",
        status=MissionStatus.WORKING,
        created_at=NOW,
    )


@pytest.mark.parametrize(
    ("rules", "spent", "answer", "status"),
    [
        ({"expires_at": (NOW + timedelta(seconds=1)).isoformat()}, {}, None, None),
        ({"expires_at": NOW.isoformat()}, {}, None, MissionStatus.EXPIRED),
        ({}, {"runs": 100}, None, MissionStatus.OUT_OF_BUDGET),
        ({"total": {"tokens": 5}}, {"tokens": 4}, None, None),
        ({"stop_after_failures": 2}, {"failures": 2}, None, MissionStatus.STOPPED),
        ({"stop_when_answer": "^DONE$"}, {}, "DONE", MissionStatus.STOPPED),
    ],
)
def test_mission_ends_by_time_budget_or_its_conditions(
    rules: dict[str, Any], spent: dict[str, Any], answer: str | None, status: MissionStatus | None
) -> None:
    over = mission(**rules).find_end(NOW, Spent(**spent), answer)
    assert (over and over[0]) == status


ENDED, PAUSED, SPENT = HoldKind.ENDED, HoldKind.PAUSED, HoldKind.SPENT
STATES = [
    *(({"status": one, "reason": "enough"}, {}, {}, ENDED) for one in MissionStatus if one != MissionStatus.WORKING),
    ({"paused": True, "pause_reason": "holiday"}, {}, {}, PAUSED),
    ({"paused": True}, {"runs": 1}, {"runs": 3}, PAUSED),  # the pause counts first: somebody can end it
    *(({}, {name: 1}, {}, SPENT) for name in ("cost_usd", "tokens", "runs")),
    *(({}, {}, {name: 3}, SPENT) for name in ("cost_usd", "tokens", "runs")),
    ({}, {"cost_usd": 0.9}, {"cost_usd": 2.9, "tokens": 2, "runs": 2, "failures": 9}, None),
]


@pytest.mark.parametrize(("state", "today", "total", "kind"), STATES)
def test_no_run_begins_while_a_mission_is_held(
    state: dict[str, Any], today: dict[str, float], total: dict[str, float], kind: HoldKind | None
) -> None:
    bounds = {name: {"cost_usd": most, "tokens": most, "runs": most} for name, most in (("per_day", 1), ("total", 3))}
    expiry = {"expires_at": (NOW + timedelta(seconds=1)).isoformat()}
    held = mission(**bounds, **expiry).model_copy(update=state)
    hold = held.find_hold(NOW, Spent.model_validate(today), Spent.model_validate(total))
    assert (hold and hold.kind) == kind
    over = held.find_hold(NOW + timedelta(seconds=1), Spent(), Spent())
    assert over is not None and over.kind is ENDED  # before anybody has noted that its time is over


def test_run_may_use_what_is_left_of_the_day_and_of_the_total() -> None:
    for day, whole, left in ((5, 9, 5), (9, 5, 5)):
        both = mission(per_day={"cost_usd": day, "tokens": day}, total={"cost_usd": whole, "tokens": whole})
        smaller = both.run_budget(Spent(), Spent(), Spent())
        assert (smaller.max_cost_usd, smaller.max_tokens) == (left, left)
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
        ({"argument": "*push*"}, "bash", {"command": "git push origin"}, True),
        ({"argument": "secret"}, "x", {"deep": [{"a": "secret"}]}, True),
        ({"argument": "*push*"}, "bash", {"command": "git push", "folder": "src"}, True),
        ({"tool": "bash", "argument": "*push*"}, "fetch_url", {"url": "https://a/push"}, False),
    ],
)
def test_risk_concerns_calls_by_tool_and_argument(
    risk: dict[str, Any], tool: str, arguments: dict[str, Any], found: bool
) -> None:
    assert RiskTrigger.model_validate(risk).concerns(tool, arguments) is found
