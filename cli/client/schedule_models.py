"""Schedules and their runs, as the API shows them."""

from cli.client.response import ResponseModel


class ScheduleInfo(ResponseModel):
    id: str
    name: str
    cron: str | None = None
    timezone: str = "UTC"
    every: int | None = None
    at: str | None = None
    agent: str
    prompt: str
    paused: bool
    pause_reason: str | None = None
    runs: dict[str, int] = {}
    next_times: list[str] | None = None
    conversation_id: str

    @property
    def when(self) -> str:
        if self.every is not None:
            return f"every {self.every / 1_000:g} s"
        return f"{self.cron} {self.timezone}" if self.cron else f"once at {self.at}"

    @property
    def state(self) -> str:
        return f"paused: {self.pause_reason}" if self.paused else "active"

    @property
    def counts(self) -> str:
        """Such as `12, skipped: 11 of 12`."""
        total = sum(self.runs.values())
        others = [f"{name}: {count} of {total}" for name, count in sorted(self.runs.items()) if name != "fired"]
        return ", ".join([str(total), *others])


class ScheduleRunInfo(ResponseModel):
    scheduled_at: str
    status: str
    reason: str = ""
    session_id: str | None = None
    task_status: str | None = None
