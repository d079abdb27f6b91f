"""The runs of a schedule or a mission, as a table."""

from typing import Any

from errand.models import RunPage

from cli.api import parse
from cli.render.output import emit, one_line, table


def show_runs(answer: Any, as_json: bool) -> None:
    if as_json:
        emit(answer)
        return
    rows = [
        [
            str(item.scheduled_at),
            item.status,
            item.task_status or "",
            item.session_id or "",
            one_line(item.reason),
        ]
        for item in parse(RunPage, answer).items
    ]
    table(["SCHEDULED", "RUN", "TASK", "ID", "REASON"], rows)
