"""Remote calls: tool calls that continue elsewhere, as tasks of an MCP server. Their handle is in the store. A session
waits with timers and short activities, asks people the questions of the other side, and passes a stop on."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.sessions.input_request import RequestKind
from domain.sessions.remote_call import LONGEST_POLL_MS, SHORTEST_POLL_MS, PendingCall
from domain.sessions.session_state import Line
from domain.sessions.step import ToolCall, ToolOutcome, ToolRequest
from workflows import activity_calls
from workflows.session import input_requests
from workflows.session.context import Ending, Renewal, SessionContext, Stopped, all_of

GROWTH = 1.2  # of the pauses: a long call is polled less often, so that the history stays small
MOST_GROWTH = 60  # polls after which they grow no more, far above the longest pause: a larger power overflows
CROWDED_POLL_MS = 3_600_000  # in a history that is long already, while another call of the step cannot be interrupted


async def follow(
    session: SessionContext, line: Line, request: ToolRequest, call: ToolCall, outcome: ToolOutcome
) -> ToolOutcome:
    """The outcome of a call, once there is one."""
    polls = asked = 0
    try:
        while (pending := outcome.pending) is not None:
            if pending.forms and pending.round != asked:
                await _ask(session, line, request, call, pending)
                asked = pending.round
            else:  # also if the answers could not be sent yet
                await _pause(session, call, pending, polls)
            session.check()
            outcome = await session.wait(activity_calls.run_tool(request, call), tool=True)
            polls = polls + 1 if outcome.pending and outcome.pending.round == pending.round else 0
            if outcome.pending is not None:
                session.check()
    except (Stopped, Ending, ActivityError):
        if session.stopping is not None and not session.outdated:  # else a newer run of this session continues the call
            await _stop(request, call)
        raise
    return outcome


async def _stop(request: ToolRequest, call: ToolCall) -> None:
    """Run it without `session.wait`, which would cancel it at once because the session is stopping."""
    try:
        await activity_calls.stop_call(request.model_copy(update={"cancel": True}), call)
    except ActivityError as error:
        workflow.logger.warning("%s was not stopped where it continues: %s", call.name, error.cause)


async def _ask(session: SessionContext, line: Line, request: ToolRequest, call: ToolCall, pending: PendingCall) -> None:
    asked = [
        input_requests.ask(
            session,
            line,
            RequestKind.CLARIFICATION,
            request.node,
            request.index,
            f"{call.name} asks",
            form=(pending.round, number),
        )
        for number in range(1, pending.forms + 1)
    ]
    await all_of(asked)


async def _pause(session: SessionContext, call: ToolCall, pending: PendingCall, polls: int) -> None:
    session.paused += 1
    try:
        if not session.renews():
            crowded = session.history_is_long
            await workflow.wait_condition(
                lambda: session.stopping is not None or session.renews(),
                timeout=timedelta(milliseconds=pause_ms(pending.wait_ms, polls, crowded=crowded)),
                timeout_summary=f"until {call.name} is asked for again",
            )
    except TimeoutError:
        pass
    finally:
        session.paused -= 1
    if session.renewal:
        raise Renewal


def pause_ms(wanted: int, polls: int, *, crowded: bool) -> int:
    """The pause before the next poll, after so many polls without news."""
    most = CROWDED_POLL_MS if crowded else LONGEST_POLL_MS
    return max(wanted, round(min(SHORTEST_POLL_MS * GROWTH ** min(polls, MOST_GROWTH), most)))
