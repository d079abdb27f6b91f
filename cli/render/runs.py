"""The runs of a schedule or a mission, as a table."""

from typing import Any

from cli.client.models import PageOf
from cli.client.response import parse
from cli.client.schedule_models import ScheduleRunInfo
from cli.render.output import emit, one_line, table


def show_runs(answer: Any, as_json: bool) -> None:
    if as_json:
        emit(answer)
        return
    rows = [
        [item.scheduled_at, item.status, item.task_status or "", item.session_id or "", one_line(item.reason)]
        for item in parse(PageOf[ScheduleRunInfo], answer).items
    ]
    table(["SCHEDULED", "RUN", "TASK", "ID", "REASON"], rows)
