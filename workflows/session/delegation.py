"""Delegation inside a session: inline lines, blocking children, and waits for several children."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.amounts import counted
from domain.conversations.subagents import (
    Begun,
    DelegationCall,
    DelegationTool,
    HandOver,
    Settle,
    Successor,
    inline_path,
)
from domain.sessions.session import CallState, ModelReply, ToolCall, ToolOutcome
from domain.sessions.session_state import Line
from workflows import activity_calls
from workflows.session import hooks
from workflows.session.context import Ending, SessionContext, all_of, cause
from workflows.ui import AGENT

# The loop is passed in. Modules that import each other get a second copy in the workflow sandbox, and then an exception
# of one copy is not caught as an exception of the other.
RunLine = Callable[[SessionContext, Line], Awaitable[Ending | None]]


async def delegate(
    session: SessionContext, line: Line, reply: ModelReply, calls: list[ToolCall], run_line: RunLine
) -> list[ToolOutcome]:
    """Begin all delegations of a step in one activity, then wait for each as its tool requires."""
    call = DelegationCall(
        ref=session.start.ref,
        agent=line.agent,
        above=line.above,
        line=line.path,
        model=line.model,
        node=reply.head,
        indexes=[call.index for call in calls],
        step=line.step,
        resumed=line.resumed,
    )
    try:
        batch = await session.wait(activity_calls.begin_delegations(call, ", ".join(call.preview for call in calls)))
    except ActivityError as error:
        session.check()
        return [
            ToolOutcome(index=call.index, name=call.name, state=CallState.UNKNOWN, preview=cause(error)[1][:160])
            for call in calls
        ]
    session.check()
    titles = {call.index: call.preview or call.name for call in calls}
    for begun in batch.calls:
        if begun.child is not None:
            session.add_child(begun.child, titles.get(begun.index, begun.kind), wakes=begun.wakes)
    await hooks.after_subagents(session, line, reply.head, [one.child for one in batch.calls if one.child is not None])
    names = {call.index: call.name for call in calls}
    return await all_of(
        [_follow(session, line, reply.head, begun, names[begun.index], run_line) for begun in batch.calls]
    )


async def _follow(
    session: SessionContext, line: Line, node: str, begun: Begun, name: str, run_line: RunLine
) -> ToolOutcome:
    if begun.settled is not None:
        return begun.settled
    settle = Settle(
        ref=session.start.ref,
        node=node,
        index=begun.index,
        tool=begun.kind,
        step=line.step,
        name=name if name != begun.kind else None,
        child=begun.child,
    )
    if begun.kind is DelegationTool.DELEGATE:
        settle = await _run_inline(session, line, begun, settle, run_line)
    elif (begun.kind is DelegationTool.TASK or begun.waits) and begun.child is not None:
        child = begun.child
        await workflow.wait_condition(
            lambda: child in session.state.ended or child in session.promoted or session.stopping is not None
        )
        settle.promoted = child not in session.state.ended
    elif begun.ids:
        await _gather(session, begun)
    session.check()
    try:
        return await session.wait(activity_calls.settle_delegation(settle))
    except ActivityError as error:
        session.check()
        return ToolOutcome(index=begun.index, name=begun.kind, state=CallState.UNKNOWN, preview=cause(error)[1][:160])


async def _run_inline(session: SessionContext, line: Line, begun: Begun, settle: Settle, run_line: RunLine) -> Settle:
    """Run the loop over a separate line: its calls are activities of this session and count against its limits."""
    assert begun.agent is not None
    inner = Line(
        path=inline_path(line.path, line.step, begun.index),
        agent=begun.agent,
        above=[*line.above, line.agent],
        models=begun.models,
        opening=f"{settle.node}/{begun.index}",
        doing=f"{begun.agent.name} is working",
        hooked=begun.hooked,
    )
    if begun.resume is not None:
        inner.head, inner.step, inner.pending = begun.resume.head, begun.resume.step, begun.resume.pending
    try:
        ending = await run_line(session, inner)
    except Ending as end:
        ending = end
    if ending is not None and inner.hooked:
        await hooks.at_end(session, ending, inner)
    if ending is not None and ending.reason.status.value != "completed":
        settle.failed = ending.error or f"it ended with {ending.reason}"
    settle.head, settle.previous, settle.previous_step = inner.head, inner.previous, inner.previous_step
    return settle


async def _gather(session: SessionContext, begun: Begun) -> None:
    """Wait for several children for a limited time. On a timeout nothing is cancelled; the result lists what still
    runs."""

    def enough() -> bool:
        ended = [child for child in begun.ids if child in session.state.ended]
        return len(ended) == len(begun.ids) or (begun.any_of and bool(ended)) or session.stopping is not None

    try:
        await workflow.wait_condition(
            enough,
            timeout=timedelta(seconds=begun.timeout_s),
            timeout_summary=f"gather {counted(len(begun.ids), 'subagent')}",
        )
    except TimeoutError:
        return


# Handoff inside a session: the agent of its main line changes, and the line continues with its history.


async def hand_over(session: SessionContext, line: Line, reply: ModelReply, calls: list[ToolCall]) -> list[ToolOutcome]:
    """Carry out the handoffs of a reply, after all of its other calls. The first that succeeds is the only one."""
    outcomes: list[ToolOutcome] = []
    to: Successor | None = None
    for call in calls:
        request = HandOver(
            ref=session.start.ref,
            agent=line.agent,
            model=line.model,
            node=reply.head,
            index=call.index,
            name=call.name,
            summary=call.preview,
            step=line.step,
            before=to.agent.name if to else None,
        )
        try:
            done = await session.wait(activity_calls.hand_over(request))
        except ActivityError as error:
            session.check()
            outcomes.append(
                ToolOutcome(index=call.index, name=call.name, state=CallState.UNKNOWN, preview=cause(error)[1][:160])
            )
            continue
        outcomes.append(done.outcome)
        to = to or done.to
    if to is not None:
        line.agent, line.models, line.model_index, line.steps = to.agent, to.models, 0, 0
        line.activated = False
        session.state.sides, session.state.handed_over = to.sides, True
        session.handed_over = True
        line.trail, line.misfits = [], 0  # repetitions of the former agent must not count for this one
        workflow.upsert_search_attributes([AGENT.value_set(to.agent.name)])
    return outcomes
