"""Delegation inside a session: inline lines, blocking children, and waits for several children."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.amounts import format_count
from domain.conversations.subagents import (
    Begun,
    DelegationCall,
    HandOver,
    InlineLine,
    LineEnd,
    Settle,
    Successor,
    inline_path,
)
from domain.sessions.session import ModelReply, Status, ToolCall, ToolOutcome
from domain.sessions.session_state import Line
from workflows import activity_calls
from workflows.session import hooks
from workflows.session.context import Ending, SessionContext, all_of, unknown_outcome
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
        return [unknown_outcome(call.index, call.name, error) for call in calls]
    session.check()
    titles = {call.index: call.preview or call.name for call in calls}
    for begun in batch.calls:
        if begun.child is not None:
            session.add_child(begun.child, titles[begun.index], wakes=begun.wakes)
    await hooks.after_subagents(session, line, reply.head, [one.child for one in batch.calls if one.child is not None])
    return await all_of([_follow(session, line, reply.head, begun, run_line) for begun in batch.calls])


async def _follow(session: SessionContext, line: Line, node: str, begun: Begun, run_line: RunLine) -> ToolOutcome:
    if begun.settled is not None:
        return begun.settled
    settle = Settle(
        ref=session.start.ref, node=node, index=begun.index, tool=begun.tool, step=line.step, child=begun.child
    )
    if begun.line is not None:
        settle.line = await _run_inline(session, line, node, begun.index, begun.line, run_line)
    elif begun.awaited:
        await _wait_for_children(session, begun)
        # The outcome of a promoted child goes to the mailbox, even if it has ended at the same moment.
        settle.promoted = begun.child is not None and (
            begun.child in session.promoted or begun.child not in session.state.ended
        )
    session.check()
    try:
        return await session.wait(activity_calls.settle_delegation(settle))
    except ActivityError as error:
        session.check()
        return unknown_outcome(begun.index, begun.tool, error)


async def _run_inline(
    session: SessionContext, line: Line, node: str, index: int, begun: InlineLine, run_line: RunLine
) -> LineEnd:
    """Run the loop over a separate line: its calls are activities of this session and count against its limits."""
    inner = Line(
        path=inline_path(line.path, line.step, index),
        agent=begun.agent,
        above=[*line.above, line.agent],
        models=begun.models,
        opening=f"{node}/{index}",
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
    failed = None
    if ending is not None and ending.reason.status is not Status.COMPLETED:
        failed = ending.error or f"it ended with {ending.reason}"
    return LineEnd(head=inner.head, failed=failed, previous=inner.previous, previous_step=inner.previous_step)


async def _wait_for_children(session: SessionContext, begun: Begun) -> None:
    """Wait until the children have ended, or continue in the background. On a timeout nothing is cancelled; the result
    lists what still runs."""
    limit = None if begun.timeout_s is None else timedelta(seconds=begun.timeout_s)

    def enough() -> bool:
        done = [child for child in begun.awaited if child in session.state.ended or child in session.promoted]
        return len(done) == len(begun.awaited) or (begun.any_of and bool(done)) or session.stopping is not None

    try:
        await workflow.wait_condition(
            enough, timeout=limit, timeout_summary=f"gather {format_count(len(begun.awaited), 'subagent')}"
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
            outcomes.append(unknown_outcome(call.index, call.name, error))
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
