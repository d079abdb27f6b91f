"""Replies: ask the model, a handler or the agent's own definition for the next reply of a line."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain import wire
from domain.agents.hook import HookPoint
from domain.sessions.hook_call import HookSubject
from domain.sessions.session import Reason, Usage
from domain.sessions.session_state import Line
from domain.sessions.step import ModelCall, ModelReply, Purpose, StopRequest
from workflows import activity_calls
from workflows.session import hooks
from workflows.session.context import Ending, SessionContext, Stopped, cause, requested_reason


async def think(
    session: SessionContext,
    line: Line,
    purpose: Purpose,
    take: list[str] | None = None,
    note: str | None = None,
    activates: bool = False,
) -> ModelReply:
    """Ask the model. Compact a context that no longer fits; switch to the fallback of a model that is unavailable."""
    compacted = purpose is not Purpose.TURN
    begins = purpose is Purpose.TURN
    unavailable: tuple[str, str] | None = None  # the model that could not be reached, and why
    hooked = session.hooked(line) and purpose is Purpose.TURN and not activates
    if hooked:
        note = await hooks.before_reply(session, line, take or [], note)
    while True:
        call = model_call(session, line, purpose, take or [], note, begins=begins, unavailable=unavailable)
        if begins:
            line.previous = None
        begins, unavailable = False, None
        try:
            reply = await session.wait(_asked(session, line, call, activates))
        except ActivityError as error:
            session.untake(take)  # nothing was committed, so the next call takes these messages again
            session.check()
            kind, message = cause(error)
            if kind == wire.CONTEXT_TOO_LONG and not compacted:
                compacted = True
                await think(session, line, Purpose.COMPACT)
            elif kind == wire.MODEL_UNAVAILABLE and not line.last_model:
                unavailable = call.model, message
                line.model_index += 1
            elif kind == wire.BUDGET_SPENT:
                raise Ending(Reason.TREE_BUDGET, "tree_budget", message) from error
            elif kind == wire.CANCEL_REQUESTED:  # the row has a cancel whose signal was lost
                session.halt(StopRequest(reason=requested_reason(error), by=message))
                raise Stopped from error
            else:
                raise Ending(Reason.ERROR, kind, message) from error
            take = session.take(line)
            continue
        line.head = reply.head  # an interrupted call has committed what it had, too
        session.state.usage = session.state.usage.plus(reply.usage)
        session.state.recorded = session.state.recorded.plus(reply.recorded or Usage())
        if reply.raised is not None:
            session.raise_limits(reply.raised)
        session.check()
        if hooked:
            await hooks.at(session, line, HookPoint.AFTER_MODEL, HookSubject(node=reply.head))
        return reply


async def activate(session: SessionContext, line: Line) -> None:
    """Start the subagents that begin with a side's prompt. They are calls of a reply, with which the line continues."""
    if session.sides is None or line.activated or line.agent.side not in session.sides.immediate:
        return
    line.activated = True
    session.state.step += 1
    line.step = session.state.step
    note, line.note = line.note, None
    line.doing = "Starting subagents"
    reply = await think(session, line, Purpose.TURN, session.take(line), note, activates=True)
    line.doing = ""
    line.pending = reply if reply.calls else None


def _asked(
    session: SessionContext, line: Line, call: ModelCall, activates: bool
) -> "workflow.ActivityHandle[ModelReply]":
    if activates:
        return activity_calls.call_model(call, activity_calls.ACTIVATE, "immediate subagents")
    if (handler := session.handler_of(line)) is not None:
        return activity_calls.call_model(call, activity_calls.CALL_HANDLER, f"handler {handler}")
    return activity_calls.call_model(call)


def model_call(
    session: SessionContext,
    line: Line,
    purpose: Purpose,
    take: list[str],
    note: str | None,
    *,
    begins: bool = False,
    unavailable: tuple[str, str] | None = None,
) -> ModelCall:
    sides = session.sides
    switched_from, switch_reason = unavailable or (None, None)
    return ModelCall(
        ref=session.start.ref,
        agent=line.agent,
        line=line.path,
        above=line.above,
        step=line.step,
        version=session.next_version(2),  # one for the beginning of the call, one for its commit
        head=line.head,
        opening=line.opening if line.head is None else None,
        model=line.model,
        last_model=line.last_model,
        purpose=purpose,
        deadline=session.deadline,
        usage=session.state.usage,
        failed_calls=session.state.failed_calls,
        denied_calls=session.state.denied_calls,
        doing=line.doing,
        speaker=sides.speaker(line.agent.side) if sides and line.is_main else None,
        take=take,
        note=note,
        begins=begins,
        previous=line.previous if begins else None,
        previous_step=line.previous_step if begins else 0,
        switched_from=switched_from,
        switch_reason=switch_reason,
    )
