"""Hooks of a session. Only an agent with hooks adds anything to the history."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.agents.hook import HookPoint
from domain.sessions.session import ToolCall, ToolOutcome
from domain.sessions.session_state import HookCall, HookList, HookOutcome, HookSubject, Line
from workflows import activity_calls
from workflows.session.context import END_TIME, Ending, SessionContext, cause, join_notes

LEAST_TIME = timedelta(milliseconds=500)  # for hooks of the end, after the deadline
NOTHING = HookOutcome()
NO_SUBJECT = HookSubject()
_NOT_RUN = "This was not run: the hooks that may guard it could not run."


async def run_hooks(
    session: SessionContext, line: Line, point: HookPoint, subject: HookSubject = NO_SUBJECT
) -> HookOutcome:
    """Run the hooks of the line's agent for this moment. The session continues without those that fail, but calls that
    one of them may guard are refused."""
    if not session.has_hooks(line):
        return NOTHING
    try:
        if point not in await _list_points(session, line):
            return NOTHING
        call = _build_call(session, line, point, subject)
        return await session.wait(activity_calls.run_hooks(call))
    except ActivityError as error:
        session.check()
        workflow.logger.warning("the hooks of %s could not run: %s", point, cause(error)[1])
        if point is not HookPoint.BEFORE_TOOL:
            return NOTHING
        return HookOutcome(refusals=dict.fromkeys(subject.indexes, _NOT_RUN))


async def before_reply(session: SessionContext, line: Line, messages: list[str], note: str | None) -> str | None:
    """The note for the model, from the hooks of the messages that enter the context and of the call itself."""
    if line.is_main and not session.state.announced:
        session.state.announced = True
        if session.start.head is None:
            await run_hooks(session, line, HookPoint.AFTER_THREAD_CREATED)
    opening = line.opening if line.head is None else None
    received = NOTHING
    if messages or opening is not None:
        received = await run_hooks(session, line, HookPoint.ON_MESSAGE, HookSubject(messages=messages, opening=opening))
    before = await run_hooks(session, line, HookPoint.BEFORE_MODEL, HookSubject(model=line.model))
    return join_notes(note, received.note, before.note)


async def after_tools(session: SessionContext, line: Line, node: str, outcomes: list[ToolOutcome]) -> None:
    """Run these hooks; their notes are shown with the next call."""
    indexes = sorted(outcome.index for outcome in outcomes)
    if indexes:
        said = await run_hooks(session, line, HookPoint.AFTER_TOOL, HookSubject(node=node, indexes=indexes))
        line.note = join_notes(line.note, said.note)


async def before_tools(session: SessionContext, line: Line, node: str, calls: list[ToolCall]) -> list[ToolCall]:
    """The calls of a reply; a call that a hook refuses gets the refusal as its result."""
    indexes = [call.index for call in calls if call.refusal is None]
    subject = HookSubject(node=node, indexes=indexes)
    said = await run_hooks(session, line, HookPoint.BEFORE_TOOL, subject) if indexes else NOTHING
    return [call.refuse(said.refusals[call.index]) if call.index in said.refusals else call for call in calls]


async def after_subagents(session: SessionContext, line: Line, node: str, children: list[str]) -> None:
    if children and session.has_hooks(line):
        said = await run_hooks(
            session, line, HookPoint.AFTER_SUBAGENT_CREATED, HookSubject(node=node, children=children)
        )
        line.note = join_notes(line.note, said.note)


async def at_end(session: SessionContext, ending: Ending, line: Line) -> None:
    """Run the hooks of the end before the ending is written, even after a stop, because nothing runs them later."""
    try:
        if HookPoint.ON_END in await _list_points(session, line, ending=True):
            subject = HookSubject(reason=ending.reason, error=ending.error)
            call = _build_call(session, line, HookPoint.ON_END, subject)
            left = max(session.time_left(END_TIME), LEAST_TIME)
            await activity_calls.run_hooks(call, until=workflow.now() + min(left, timedelta(minutes=10)))
    except ActivityError as error:
        workflow.logger.warning("the hooks of the end could not run: %s", cause(error)[1])


def _build_call(session: SessionContext, line: Line, point: HookPoint, subject: HookSubject) -> HookCall:
    return HookCall(
        ref=session.start.ref,
        agent=line.agent,
        above=line.above,
        point=point,
        step=line.step,
        line=line.path,
        workspace_id=session.start.workspace_id,
        **dict(subject),
    )


async def _list_points(session: SessionContext, line: Line, *, ending: bool = False) -> list[HookPoint]:
    """Look hooks up once for each agent and side that takes turns; again if that failed."""
    known, name = session.state.hook_points, f"{line.agent.owner}/{line.agent.name}/{line.agent.side}"
    if name not in known:
        wanted = activity_calls.list_hooks(HookList(ref=session.start.ref, agent=line.agent))
        known[name] = (await (wanted if ending else session.wait(wanted))).points
    return known[name]
