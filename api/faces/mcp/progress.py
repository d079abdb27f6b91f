"""Waiting for a task, with the newest line of its log as progress."""

from collections.abc import Awaitable, Callable

from api.http.auth import Call
from api.streams.readers import await_state
from domain.events import Recorded
from domain.sessions.session import Status
from store import events
from store.sessions import SessionRow

PAGE = 200
RECENT = 20  # events before now, for a first line at once

Report = Callable[[int, str], Awaitable[None]]  # a growing number, and a line


def line_of(event: Recorded) -> str | None:
    """An event as a line of progress; None if it does not interest a person who waits."""
    data = event.data
    match event.type:
        case "progress":
            return str(data["message"])
        case "step_started":
            return str(data["description"])
        case "tool_called":
            return f"{data['tool']} {data['args']}"
        case "input_required":
            return f"waits for people: {data['question']}"
        case "subagent_started":
            return f"subagent {data['agent']}: {data['description']}"
    return None


async def await_news(
    call: Call, session: SessionRow, seconds: float, report: Report | None, *, asks: bool = True
) -> SessionRow:
    """The session once it has ended or, with `asks`, waits for people; or its present state after this many seconds or
    when this process stops."""
    head = await events.head_of_session(call.pool, call.tenant, session.id) if report else None
    seen = max(0, head[0] - RECENT) if head else 0

    async def look(now: SessionRow) -> bool:
        nonlocal seen
        if report is not None:
            seen = await _report(call, now, seen, report)
        return now.status.terminal or (asks and now.status is Status.INPUT_REQUIRED)

    return await await_state(call, session, seconds, look)


async def _report(call: Call, session: SessionRow, seen: int, report: Report) -> int:
    page = await events.without_deltas(call.pool, call.tenant, session.id, PAGE, seen)
    lines = [(event.seq, line) for event in page if (line := line_of(event))]
    # only the newest line: a client that connects late must not get the whole history as progress
    if lines:
        await report(*lines[-1])
    # events without a line count as seen too, or each look would read them again
    return page[-1].seq if page else seen
