"""The calls of one reply: which may run, how they run, and their outcomes."""

import contextlib
from collections.abc import Collection, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from domain.amounts import format_count
from domain.sessions.input_request import RequestKind
from domain.sessions.session import (
    LONGEST_POLL_MS,
    SHORTEST_POLL_MS,
    CallState,
    Effect,
    ModelReply,
    PendingCall,
    Reason,
    ToolCall,
    ToolOutcome,
    ToolRequest,
)
from domain.sessions.session_state import Line
from workflows import activity_calls
from workflows.session import delegation, hooks, requests
from workflows.session.context import Ending, SessionContext, Stopped, all_of, unknown_outcome
from workflows.session.delegation import RunLine

NOT_APPROVED = (
    "Nothing with an effect may run before your plan is approved. Look around, then submit the plan with update_plan."
)

OVER_LIMIT = "This session has reached its limit of tool calls. This one was not run."
DENIED = "The rules of this task denied {}; further attempts will not succeed."
TREE_SPENT = "The budget of tool calls that this session shares with its tree is spent."


async def act(
    session: SessionContext, line: Line, reply: ModelReply, run_line: RunLine, last: Collection[str] | None = None
) -> list[ToolOutcome]:
    """Run the calls of one reply; their results wait in the store for the next model call. They run concurrently. If
    `last` is given they run one after another in their order, but the tools with these names after all others."""
    if blocked := next((call for call in reply.calls if call.asks and call.refusal), None):
        raise Ending(Reason.NEEDS_INPUT, "needs_input", blocked.preview)
    reply = reply.model_copy(update={"calls": limit_calls(session, reply.calls)})
    if session.has_hooks(line):
        reply.calls = await hooks.before_tools(session, line, reply.head, reply.calls)
    session.calling += len(reply.calls)
    try:
        if last is None:
            outcomes = await _run_calls(session, line, reply, run_line)
        else:
            outcomes = await _run_one_by_one(session, line, reply, run_line, last)
    finally:
        session.calling -= len(reply.calls)
    count_calls(session, outcomes, reply.calls)
    for outcome in outcomes:
        line.doing = outcome.doing or line.doing
    session.check()
    if any(one.replanned for one in outcomes):
        session.state.plan_approved = False  # the approved plan is no longer the present one
    if session.plan_awaits_approval and any(one.planned and one.state is CallState.OK for one in outcomes):
        await requests.approve_plan(session, line, reply.head)
    if session.has_hooks(line):
        await hooks.after_tools(session, line, reply.head, outcomes)
    return sorted(outcomes, key=lambda outcome: outcome.index)


def limit_calls(session: SessionContext, calls: list[ToolCall]) -> list[ToolCall]:
    """Refuse the calls beyond the limit of tool calls; the session ends after this step."""
    most = session.limits.tool_calls
    if most is None:
        return calls
    left = max(0, most - session.state.usage.tool_invocations - session.calling)
    if len(calls) > left:
        session.spent = Ending(Reason.TOOL_LIMIT)
    return [*calls[:left], *(call.refuse(OVER_LIMIT) for call in calls[left:])]


def count_calls(session: SessionContext, outcomes: list[ToolOutcome], calls: list[ToolCall]) -> None:
    state, over = session.state, sum(call.refusal == OVER_LIMIT for call in calls)
    made = state.usage.tool_invocations + len(outcomes) - over
    state.usage = state.usage.model_copy(update={"tool_invocations": made})
    for used in [outcome.used for outcome in outcomes if outcome.used]:
        state.usage = state.usage.plus(used)
    state.failed_calls += sum(outcome.state is not CallState.OK for outcome in outcomes) - over
    state.denied_calls += sum(outcome.denied for outcome in outcomes)
    state.forbidden_calls += sum(outcome.forbidden for outcome in outcomes)
    most = session.limits.denied
    if most is not None and state.forbidden_calls >= most:
        session.spent = Ending(
            Reason.POLICY_DENIED, "policy_denied", DENIED.format(format_count(state.forbidden_calls, "call"))
        )
    if any(outcome.spent for outcome in outcomes):
        session.spent = Ending(Reason.TREE_BUDGET, "tree_budget", TREE_SPENT)


def is_delegation(call: ToolCall) -> bool:
    return call.activity == activity_calls.begin_delegations.name


def is_handoff(call: ToolCall) -> bool:
    return call.activity == activity_calls.hand_over.name


async def _run_calls(session: SessionContext, line: Line, reply: ModelReply, run_line: RunLine) -> list[ToolOutcome]:
    """Run them concurrently; handoffs after all others."""
    handoffs = [call for call in reply.calls if is_handoff(call)]
    tools = [
        _list_one(run_tool(session, line, reply.head, call))
        for call in reply.calls
        if not is_delegation(call) and call not in handoffs
    ]
    parts = await all_of([*tools, _delegate(session, line, reply, run_line)])
    outcomes = [outcome for part in parts for outcome in part]
    return outcomes + (await _hand_over(session, line, reply, handoffs) if handoffs else [])


async def _run_one_by_one(
    session: SessionContext, line: Line, reply: ModelReply, run_line: RunLine, last: Collection[str]
) -> list[ToolOutcome]:
    outcomes: list[ToolOutcome] = []
    handoffs = [call for call in reply.calls if is_handoff(call)]
    others = [call for call in reply.calls if call not in handoffs]
    for call in sorted(others, key=lambda call: call.name in last):
        outcomes += await _run_calls(session, line, reply.model_copy(update={"calls": [call]}), run_line)
        session.check()
    return outcomes + (await _hand_over(session, line, reply, handoffs) if handoffs else [])


async def _list_one(outcome: Coroutine[Any, Any, ToolOutcome]) -> list[ToolOutcome]:
    return [await outcome]


async def _delegate(session: SessionContext, line: Line, reply: ModelReply, run_line: RunLine) -> list[ToolOutcome]:
    """Begin the permitted delegations of a reply together."""
    calls = [call for call in reply.calls if is_delegation(call)]
    begun, outcomes = await _ask_permission(session, line, reply, calls)
    return outcomes + (await delegation.delegate(session, line, reply, begun, run_line) if begun else [])


async def _hand_over(
    session: SessionContext, line: Line, reply: ModelReply, calls: list[ToolCall]
) -> list[ToolOutcome]:
    """Hand over after the other calls of the reply have run, because those belong to the former agent."""
    session.check()
    allowed, outcomes = await _ask_permission(session, line, reply, calls)
    return outcomes + await delegation.hand_over(session, line, reply, allowed)


async def _ask_permission(
    session: SessionContext, line: Line, reply: ModelReply, calls: list[ToolCall]
) -> tuple[list[ToolCall], list[ToolOutcome]]:
    """The calls that may begin, after people were asked if a rule requires it, and the results of the others."""
    refused = [call for call in calls if _is_withheld(session, call)]
    outcomes = await all_of([run_tool(session, line, reply.head, call) for call in refused])
    asked = [call for call in calls if call.ask and call not in refused]
    approvals = await all_of([requests.approve_tool(session, line, reply.head, call) for call in asked])
    denied = [call for call, approval in zip(asked, approvals, strict=True) if approval is None]
    outcomes += [_deny(call) for call in denied]
    return [call for call in calls if call not in refused and call not in denied], outcomes


def _is_withheld(session: SessionContext, call: ToolCall) -> bool:
    return session.plan_awaits_approval and call.effect is not Effect.READ and not call.talks


def _deny(call: ToolCall) -> ToolOutcome:
    return ToolOutcome(
        index=call.index, name=call.name, state=CallState.FAILED, preview="denied by a person", denied=True
    )


async def run_tool(session: SessionContext, line: Line, node: str, call: ToolCall) -> ToolOutcome:
    approval = None
    if call.asks and call.activity == activity_calls.open_request.name:
        return await requests.answer_call(session, line, node, call, RequestKind.CLARIFICATION)
    if _is_withheld(session, call):
        call = call.refuse(NOT_APPROVED)
    if call.ask:
        approval = await requests.approve_tool(session, line, node, call)
        if approval is None:
            return _deny(call)
    if call.activity == activity_calls.open_request.name:
        return await requests.answer_call(session, line, node, call, RequestKind.EXTERNAL_RESULT)
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
        outcome = await _start_and_wait(session, request, call)
        if outcome.pending is not None:
            outcome = await follow_remote_call(session, line, request, call, outcome)
        return outcome.model_copy(update={"denied": True, "forbidden": True}) if call.denied else outcome
    except ActivityError as error:
        session.check()
        return unknown_outcome(call.index, call.name, error)


async def _start_and_wait(session: SessionContext, request: ToolRequest, call: ToolCall) -> ToolOutcome:
    if call.bookkeeping:
        try:
            return await session.wait(activity_calls.run_bookkeeping_tool(request, call), tool=True)
        # too slow, or the database is unreachable; the SDK does not wrap a local activity's error
        except FailureError as error:
            session.check()
            workflow.logger.info("%s runs as a queued activity: %s", call.name, error.message)
    return await session.wait(activity_calls.run_tool(request, call), tool=True)


# Calls that continue elsewhere, as tasks of an MCP server. Their handle is in the store. The session waits with timers
# and short activities, asks people the questions of the other side, and passes a stop on.

# A call is polled the less often the longer it takes, so that one of weeks does not fill the session's history.
GROWTH = 1.2
MOST_GROWTH = 80  # polls after which pauses grow no more, far above the longest: a larger power overflows
CROWDED_POLL_MS = 86_400_000  # in a history that is long already, which a step that waits cannot renew


async def follow_remote_call(
    session: SessionContext, line: Line, request: ToolRequest, call: ToolCall, outcome: ToolOutcome
) -> ToolOutcome:
    """The outcome of a call, once there is one."""
    polls = asked = 0
    try:
        while (pending := outcome.pending) is not None:
            if pending.forms and pending.round != asked:
                await _ask_forms(session, line, request, call, pending)
                asked = pending.round
            else:  # also if the answers could not be sent yet
                await _pause_poll(session, call, pending, polls)
            session.check()
            outcome = await session.wait(activity_calls.run_tool(request, call), tool=True)
            polls = polls + 1 if outcome.pending and outcome.pending.round == pending.round else 0
            if outcome.pending is not None:
                session.check()
    except (Stopped, Ending, ActivityError):
        if session.stopping is not None and not session.outdated:  # else a newer run of this session continues the call
            await _stop_remote_call(request, call)
        raise
    return outcome


async def _ask_forms(
    session: SessionContext, line: Line, request: ToolRequest, call: ToolCall, pending: PendingCall
) -> None:
    asked = [
        requests.ask(
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


async def _pause_poll(session: SessionContext, call: ToolCall, pending: PendingCall, polls: int) -> None:
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(
            lambda: session.stopping is not None,
            timeout=timedelta(milliseconds=pause_ms(pending.wait_ms, polls, crowded=session.history_is_long)),
            timeout_summary=f"until {call.name} is asked for again",
        )


def pause_ms(wanted: int, polls: int, *, crowded: bool) -> int:
    """The pause before the next poll, after so many polls without news."""
    most = CROWDED_POLL_MS if crowded else LONGEST_POLL_MS
    return max(wanted, round(min(SHORTEST_POLL_MS * GROWTH ** min(polls, MOST_GROWTH), most)))


async def _stop_remote_call(request: ToolRequest, call: ToolCall) -> None:
    """Run it without `session.wait`, which would cancel it at once because the session is stopping."""
    try:
        await activity_calls.run_tool(request.model_copy(update={"cancel": True}), call)
    except ActivityError as error:
        workflow.logger.warning("%s was not stopped where it continues: %s", call.name, error.cause)
