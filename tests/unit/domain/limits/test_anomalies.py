"""Anomalies: each figure has its threshold, and too few calls are not judged."""

from domain.limits import Thresholds, find_anomalies
from domain.sessions.session import Usage

MOST = Thresholds(error_rate=0.5, spend_per_minute=1.0, denied=3)


def kinds(failed: int = 0, denied: int = 0, seconds: float = 0, **usage: float) -> list[str]:
    return [one.kind for one in find_anomalies(Usage.model_validate(usage), failed, denied, seconds, MOST)]


def test_each_figure_has_its_threshold() -> None:
    assert kinds(failed=5, tool_invocations=10) == ["error_rate"]
    assert kinds(failed=4, tool_invocations=10) == []
    assert kinds(failed=9, tool_invocations=9) == []  # too few to judge
    assert kinds(seconds=120, cost_usd=2.5) == ["spend_rate"]
    assert kinds(seconds=180, cost_usd=2.5) == []
    assert kinds(seconds=1, cost_usd=0.9) == []  # less than a minute counts as a whole minute
    assert kinds(denied=3) == ["denied_calls"]
    assert kinds(failed=10, denied=9, seconds=60, tool_invocations=10, cost_usd=9) == [
        "error_rate",
        "spend_rate",
        "denied_calls",
    ]
