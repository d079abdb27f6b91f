"""Anomalies: unusual figures of one session that people should look at. Each is reported once."""

from dataclasses import dataclass

from domain.events import Anomaly
from domain.sessions.session import Usage

FEWEST_CALLS = 10  # with fewer calls an error rate is meaningless


@dataclass(frozen=True)
class Thresholds:
    error_rate: float  # share of tool calls that failed
    spend_per_minute: float  # dollars
    denied: int  # calls that a rule or a person denied


def anomalies(usage: Usage, failed: int, denied: int, seconds: float, most: Thresholds) -> list[Anomaly]:
    found: list[Anomaly] = []
    calls = usage.tool_invocations
    if calls >= FEWEST_CALLS and failed / calls >= most.error_rate:
        found.append(Anomaly(kind="error_rate", value=round(failed / calls, 3), threshold=most.error_rate))
    rate = (usage.cost_usd or 0) / max(1.0, seconds / 60)
    if rate >= most.spend_per_minute:
        found.append(Anomaly(kind="spend_rate", value=round(rate, 6), threshold=most.spend_per_minute))
    if denied >= most.denied:
        found.append(Anomaly(kind="denied_calls", value=denied, threshold=most.denied))
    return found
