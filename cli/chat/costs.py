"""The cost of a conversation, read from its events."""

from cli.api import EventData


class Costs:
    """Dollars by session. A session that was running when the chat began is counted only by its own events."""

    def __init__(self) -> None:
        self._by_session: dict[str, float | None] = {}

    def note(self, event: EventData) -> None:
        used = event.get("total") if event["type"] == "usage_updated" else event.get("usage")
        if isinstance(used, dict) and "cost_usd" in used:
            self._by_session[event["session_id"]] = used["cost_usd"]

    def begin_with(self, known: list[float | None]) -> None:
        """The costs so far, by model; costs of running sessions were noted before."""
        # minus what running sessions have noted, because their next event replaces their own share
        self._by_session[""] = sum(cost or 0.0 for cost in known) - self.total

    @property
    def total(self) -> float:
        """The total, without models that have no price."""
        return sum(cost for cost in self._by_session.values() if cost is not None)
