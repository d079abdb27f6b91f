"""The loop: ask the model, run its tool calls, repeat. One function per line, so that an inline delegate can nest
it."""

from collections.abc import Collection, Coroutine
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from domain.agents.typed_output import MAX_MISFITS, retry_request
from domain.limits import CUT_OFF, Next, decide_next
from domain.sessions.input_request import RequestKind
from domain.sessions.session import Reason
from domain.sessions.session_state import Line
from domain.sessions.step import (
    CallState,
    Effect,
    ModelReply,
    Purpose,
    ToolCall,
    ToolOutcome,
    ToolRequest,
)
from workflows import activity_calls
from workflows.session import acceptance, delegation, handoff, hooks, input_requests, limits, remote_calls
from workflows.session.context import Ending, Renewal, SessionContext, all_of, cause
from workflows.session.replies import think
from workflows.ui import current_details, step_result

NOT_APPROVED = (
    "Nothing with an effect may run before your plan is approved. Look around, then submit the plan with update_plan."
)


async def run_line(session: SessionContext, line: Line) -> Ending | None:
    """Run until the line must end. None means that the workflow should continue as new here, between two steps, or that
    another agent has taken over."""
    state = session.state
    while not session.handed_over:
        reply = line.take_pending()
        if reply is None:
            if limit := limits.limit_reached(session):
                return limit
            if line.is_main and session.history_is_long:
                return None
            state.step += 1
            line.step = state.step
            note, line.note = line.note, None
            reply = await think(session, line, Purpose.TURN, session.take(line), note)
        decision = decide_next(reply)
        line.note = CUT_OFF if decision.next is Next.ASK_AGAIN else None
        if decision.next is Next.STOP:
            assert decision.reason is not None
            line.previous, line.previous_step = step_result(reply, []), line.step
            if decision.reason is not Reason.GOAL_REACHED:
                return Ending(decision.reason, decision.error_type, decision.error)
            if ending := await answered(session, line, reply):
                return ending
            continue
        began = workflow.now()
        outcomes = await act(session, line, reply)
        line.previous, line.previous_step = step_result(reply, outcomes), line.step
        if reply.calls and limits.repeats_itself(session, line, outcomes, workflow.now() - began):
            return Ending(Reason.LOOP_DETECTED)
        if reply.full or decision.next is Next.COMPACT:
            await think(session, line, Purpose.COMPACT)
        workflow.set_current_details(current_details(session.start, state, outcomes, workflow.info().namespace))
    return None


async def answered(session: SessionContext, line: Line, reply: ModelReply) -> Ending | None:
    """The ending after an answer without calls; None if the line continues."""
    if reply.misfit is not None:
        line.misfits += 1
        if line.misfits >= MAX_MISFITS:
            return Ending(Reason.ERROR, "output_schema", reply.misfit)
        line.note = retry_request(reply.misfit)
        return None
    return Ending(Reason.GOAL_REACHED) if await done(session, line, reply) else None


async def done(session: SessionContext, line: Line, reply: ModelReply) -> bool:
    """Whether an answer ends the line: always for an inline one, else if no message is unread and the criteria hold."""
    if reply.continues:
        return False
    if not line.is_main:
        return True
    if await session.has_unread():
        return False
    return not session.start.acceptance or await acceptance.met(session, line)


async def act(
    session: SessionContext, line: Line, reply: ModelReply, last: Collection[str] | None = None
) -> list[ToolOutcome]:
    """Run the calls of one reply; their results wait in the store for the next model call. They run concurrently. If
    `last` is given they run one after another in their order, but the tools with these names after all others."""
    if blocked := next((call for call in reply.calls if call.asks and call.refusal), None):
        raise Ending(Reason.NEEDS_INPUT, "needs_input", blocked.preview)
    given = reply
    reply = reply.model_copy(update={"calls": limits.within_limit(session, reply.calls)})
    if session.hooked(line):
        reply.calls = await hooks.before_tools(session, line, reply.head, reply.calls)
    session.calling += len(reply.calls)
    try:
        outcomes = await (_outcomes(session, line, reply) if last is None else _one_by_one(session, line, reply, last))
    except Renewal:
        line.pending = given  # the next run continues with it, and finds each call by its node and index
        raise
    finally:
        session.calling -= len(reply.calls)
    limits.count(session, outcomes, reply.calls)
    for outcome in outcomes:
        line.doing = outcome.doing or line.doing
    session.check()
    if any(one.replanned for one in outcomes):
        session.state.plan_approved = False  # the approved plan is no longer the present one
    if session.plan_awaits_approval and any(one.planned and one.state is CallState.OK for one in outcomes):
        await input_requests.approve_plan(session, line, reply.head)
    if session.hooked(line):
        await hooks.after_tools(session, line, reply.head, outcomes)
    return sorted(outcomes, key=lambda outcome: outcome.index)


async def _outcomes(session: SessionContext, line: Line, reply: ModelReply) -> list[ToolOutcome]:
    handoffs = [call for call in reply.calls if handoff.is_handoff(call)]
    tools = [
        _listed(run_tool(session, line, reply.head, call))
        for call in reply.calls
        if not delegation.is_delegation(call) and call not in handoffs
    ]
    parts = [session.unsettled_until_done(part) for part in (*tools, _delegate(session, line, reply))]
    outcomes = [outcome for part in await all_of(parts) for outcome in part]
    return outcomes + (await _hand_over(session, line, reply, handoffs) if handoffs else [])


async def _hand_over(
    session: SessionContext, line: Line, reply: ModelReply, calls: list[ToolCall]
) -> list[ToolOutcome]:
    """Hand over after the other calls of the reply have run, because those belong to the former agent."""
    session.check()
    allowed, outcomes = await _permitted(session, line, reply, calls)
    return outcomes + await handoff.hand_over(session, line, reply, allowed)


async def _one_by_one(
    session: SessionContext, line: Line, reply: ModelReply, last: Collection[str]
) -> list[ToolOutcome]:
    outcomes: list[ToolOutcome] = []
    handoffs = [call for call in reply.calls if handoff.is_handoff(call)]
    others = [call for call in reply.calls if call not in handoffs]
    for call in sorted(others, key=lambda call: call.name in last):
        outcomes += await _outcomes(session, line, reply.model_copy(update={"calls": [call]}))
        session.check()
    return outcomes + (await _hand_over(session, line, reply, handoffs) if handoffs else [])


async def _listed(outcome: Coroutine[Any, Any, ToolOutcome]) -> list[ToolOutcome]:
    return [await outcome]


def _withheld(session: SessionContext, call: ToolCall) -> bool:
    return session.plan_awaits_approval and call.effect is not Effect.READ and not call.talks


async def _delegate(session: SessionContext, line: Line, reply: ModelReply) -> list[ToolOutcome]:
    """Begin the permitted delegations of a reply together."""
    calls = [call for call in reply.calls if delegation.is_delegation(call)]
    begun, outcomes = await _permitted(session, line, reply, calls)
    return outcomes + (await delegation.delegate(session, line, reply, begun, run_line) if begun else [])


async def _permitted(
    session: SessionContext, line: Line, reply: ModelReply, calls: list[ToolCall]
) -> tuple[list[ToolCall], list[ToolOutcome]]:
    """The calls that may begin, after people were asked if a rule requires it, and the results of the others."""
    refused = [call for call in calls if _withheld(session, call)]
    outcomes = await all_of([run_tool(session, line, reply.head, call) for call in refused])
    asked = [call for call in calls if call.ask and call not in refused]
    approvals = await all_of([input_requests.approve_tool(session, line, reply.head, call) for call in asked])
    denied = [call for call, approval in zip(asked, approvals, strict=True) if approval is None]
    outcomes += [_denied(call) for call in denied]
    return [call for call in calls if call not in refused and call not in denied], outcomes


def _denied(call: ToolCall) -> ToolOutcome:
    return ToolOutcome(
        index=call.index, name=call.name, state=CallState.FAILED, preview="denied by a person", denied=True
    )


async def run_tool(session: SessionContext, line: Line, node: str, call: ToolCall) -> ToolOutcome:
    approval = None
    if call.asks and call.activity == activity_calls.OPEN_REQUEST.name:
        return await input_requests.answer_call(session, line, node, call, RequestKind.CLARIFICATION)
    if _withheld(session, call):
        call = limits.refused(call, NOT_APPROVED)
    if call.ask:
        approval = await input_requests.approve_tool(session, line, node, call)
        if approval is None:
            return _denied(call)
    if call.activity == activity_calls.OPEN_REQUEST.name:
        return await input_requests.answer_call(session, line, node, call, RequestKind.EXTERNAL_RESULT)
    request = ToolRequest(
        above=line.above,
        refusal=call.refusal,
        rule=call.rule,
        approval=approval,
        ref=session.start.ref,
        agent=line.agent,
        step=line.step,
        node=node,
        index=call.index,
        name=call.name,
        effect=call.effect,
        preview=call.preview,
        workspace_id=session.start.workspace_id,
        sandbox=session.start.sandbox,
    )
    try:
        outcome = await _called(session, request, call)
        if outcome.pending is not None:
            outcome = await remote_calls.follow(session, line, request, call, outcome)
        return outcome.model_copy(update={"denied": True, "forbidden": True}) if call.denied else outcome
    except ActivityError as error:
        session.check()
        # the store has no result for this call, and the next model call shows that to the model
        return ToolOutcome(index=call.index, name=call.name, state=CallState.UNKNOWN, preview=cause(error)[1][:160])


async def _called(session: SessionContext, request: ToolRequest, call: ToolCall) -> ToolOutcome:
    if call.bookkeeping:
        try:
            return await session.wait(activity_calls.run_bookkeeping_tool(request, call), tool=True)
        # too slow, or the database is unreachable; the SDK does not wrap a local activity's error
        except FailureError as error:
            session.check()
            workflow.logger.info("%s runs as a queued activity: %s", call.name, error.message)
    return await session.wait(activity_calls.run_tool(request, call), tool=True)
