"""Input requests: a session waits for people. It uses no resources while it waits, and every wait has a deadline."""

from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.ids import derive_id
from domain.sessions.input_request import (
    OpenedRequest,
    OpenRequest,
    RemindRequest,
    RequestKind,
    RequestStatus,
    SettledRequest,
)
from domain.sessions.session import CallState, Reason, StopRequest, ToolCall, ToolOutcome, form_id
from domain.sessions.session_state import Line
from workflows import activity_calls
from workflows.session.context import Ending, SessionContext, Stopped, cause, join_notes
from workflows.ui import STATUS, current_details

T = TypeVar("T")


async def ask(
    session: SessionContext,
    line: Line,
    kind: RequestKind,
    node: str,
    index: int,
    summary: str,
    external: bool = False,
    form: tuple[int, int] | None = None,
) -> SettledRequest | None:
    """Open a request, wait for its answer or its deadline, and settle it. None if the request was refused; then the
    model learns why.

    If the session is stopped while it waits, its end withdraws the request. `form` is for a call that continues
    elsewhere: the round in which it asks, and the number of the form.
    """
    # The id derives from the call or plan, so that an old approval can never be used for a new attempt.
    request_id = derive_id(node, kind, index) if form is None else form_id(node, index, *form)
    request = OpenRequest(
        ref=session.start.ref,
        id=request_id,
        kind=kind,
        node=node,
        index=index,
        deadline=session.deadline,
        agents=[*line.above, line.agent],
        external=external,
        form=form[1] if form else 0,
    )
    opened = await _write(session, activity_calls.open_request(request, summary))
    if opened.refused:
        return None
    if opened.described:
        return SettledRequest(status=RequestStatus.WITHDRAWN, approved=True, preview="dry run")
    session.waiting += 1
    _show_waiting(session, request_id, f"{opened.shown or summary} · until {opened.deadline:%Y-%m-%d %H:%M} UTC")
    try:
        if not opened.settled:
            await _await_answer(session, request, opened)
        session.check()
        settled = await _write(session, activity_calls.settle_request(request))
    finally:
        session.waiting -= 1
    _show_waiting(session, request_id, None)
    if settled.cancel:
        # It ends not only this line: everything else that the session does or waits for stops too.
        session.halt(StopRequest(reason=Reason.INPUT_TIMEOUT, by="errand"))
        raise Stopped
    return settled


def _show_waiting(session: SessionContext, request_id: str, about: str | None) -> None:
    """Show in the Web UI that the session waits, and for what; None: it no longer waits for this request."""
    before = bool(session.waiting_for)
    if about is None:
        session.waiting_for.pop(request_id, None)
    else:
        session.waiting_for[request_id] = about
    waiting = list(session.waiting_for.values())
    namespace = workflow.info().namespace
    workflow.set_current_details(current_details(session.start, session.state, [], namespace, waiting=waiting))
    if before != bool(waiting):
        workflow.upsert_search_attributes([STATUS.value_set("input_required" if waiting else "working")])


async def _write(session: SessionContext, handle: "workflow.ActivityHandle[T]") -> T:
    try:
        result = await session.wait(handle)
    except ActivityError as error:
        session.check()
        raise Ending(Reason.ERROR, *cause(error)) from error
    session.check()
    return result


async def _await_answer(session: SessionContext, request: OpenRequest, opened: OpenedRequest) -> None:
    kind = request.kind
    for moment, escalate in opened.nudges():
        if await _is_answered(session, request.id, moment, f"{'escalation' if escalate else 'reminder'} · {kind}"):
            return
        remind = RemindRequest(ref=session.start.ref, id=request.id, escalate=escalate)
        await _write(session, activity_calls.remind_request(remind))
    until, own = opened.deadline, opened.deadline < request.deadline
    while not await _is_answered(session, request.id, until, f"input deadline · {kind}"):
        if own or session.deadline <= until:
            return
        until = session.deadline  # the session got more time, and so did a question that may wait as long


async def _is_answered(session: SessionContext, request_id: str, until: datetime, summary: str) -> bool:
    """Wait for an answer; False if there was none in time. After the deadline the request is settled as expired."""
    try:
        await workflow.wait_condition(
            lambda: request_id in session.state.answered or session.stopping is not None,
            timeout=max(until - workflow.now(), timedelta()),
            timeout_summary=summary,
        )
    except TimeoutError:
        return False
    return True


async def answer_call(session: SessionContext, line: Line, node: str, call: ToolCall, kind: RequestKind) -> ToolOutcome:
    """Get the result of a call from outside: the answer to a question, or the result of an external tool."""
    settled = await ask(session, line, kind, node, call.index, call.preview, call.external)
    if settled is None:
        return ToolOutcome(index=call.index, name=call.name, state=CallState.FAILED, preview="nobody was asked")
    state = CallState.OK if settled.approved else CallState.FAILED
    return ToolOutcome(index=call.index, name=call.name, state=state, preview=settled.preview)


async def approve_tool(session: SessionContext, line: Line, node: str, call: ToolCall) -> str | None:
    """The id of the approval with which the call may run; None if it was denied, and the model learns why."""
    about = f"approve {call.name}: {call.preview}"
    settled = await ask(session, line, RequestKind.TOOL_APPROVAL, node, call.index, about, call.external)
    return derive_id(node, RequestKind.TOOL_APPROVAL, call.index) if settled and settled.approved else None


async def ask_variables(session: SessionContext, line: Line) -> None:
    """Ask once, before the first step, for all values that the agent needs to begin."""
    node = session.start.ref.session_id  # there is no message yet to which it could refer
    settled = await ask(session, line, RequestKind.MISSING_VARIABLES, node, 0, "missing variables")
    if settled is not None:
        line.note = join_notes(line.note, settled.note)


async def approve_plan(session: SessionContext, line: Line, node: str) -> None:
    """Get the plan approved. Nothing with an effect runs before that; a rejection leads to another plan."""
    settled = await ask(session, line, RequestKind.PLAN_APPROVAL, node, 0, "approve the plan")
    assert settled is not None  # only questions can be refused
    session.state.plan_approved = settled.approved
    line.note = settled.note
