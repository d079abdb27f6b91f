"""Missions, as the API shows them."""

from cli.client.response import ResponseModel
from domain.amounts import counted


class MissionSpent(ResponseModel):
    cost_usd: float
    tokens: int
    runs: int


class MissionInfo(ResponseModel):
    id: str
    name: str
    status: str
    paused: bool
    pause_reason: str | None = None
    requests: list[str] = []
    reason: str | None = None
    summary: str | None = None
    conversation_id: str
    schedule_id: str
    today: MissionSpent
    total: MissionSpent

    @property
    def state(self) -> str:
        if self.paused:
            return f"{self.status}, paused: {self.pause_reason}"
        return f"{self.status}: {self.reason}" if self.reason else self.status

    @property
    def used(self) -> str:
        return f"{counted(self.total.runs, 'run')}, {self.total.tokens} tokens, {self.total.cost_usd:.4f} USD"
