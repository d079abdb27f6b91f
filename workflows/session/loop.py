"""The loop: ask the model, run its tool calls, repeat. One function per line, so that an inline delegate can nest it.
An agent with two sides has a loop of its own at the end, over the same parts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain import limits as loop_detection
from domain import wire
from domain.agents.definition import Side, Sides
from domain.agents.hook import HookPoint
from domain.agents.typed_output import MAX_MISFITS, retry_request
from domain.limits import CUT_OFF, Decision, Next, SideVerdict, decide_next, find_reached_limit, judge_response
from domain.sessions.acceptance import CheckAcceptance
from domain.sessions.session import BindingCall, ModelCall, ModelReply, Purpose, Reason, StopRequest, ToolOutcome, Usage
from domain.sessions.session_state import HookSubject, Line
from workflows import activity_calls
from workflows.session import hooks
from workflows.session.context import Ending, SessionContext, Stopped, cause, join_notes, read_stop_reason
from workflows.session.tools import act
from workflows.ui import current_details, step_result

STEPS_USED = "{} has used all steps that it may take in one session ({})."
NOT_OVER = "Your reply did not end your turn. Continue{}."


async def run_line(session: SessionContext, line: Line) -> Ending | None:
    """Run until the line must end. None means that the workflow should continue as new here, between two steps, or that
    another agent has taken over."""
    state = session.state
    while not session.handed_over:
        reply = line.take_pending()
        if reply is None:
            if limit := find_limit(session):
                return limit
            if line.is_main and session.history_is_long:
                return None
            reply = await take_step(session, line)
        decision = decide_next(reply)
        line.note = CUT_OFF if decision.next is Next.ASK_AGAIN else None
        if decision.next is Next.STOP:
            assert decision.reason is not None
            line.previous, line.previous_step = step_result(reply, []), line.step
            if decision.reason is not Reason.GOAL_REACHED:
                return Ending(decision.reason, decision.error_type, decision.error)
            if ending := await end_answer(session, line, reply):
                return ending
            continue
        began = workflow.now()
        outcomes = await act(session, line, reply, run_line)
        line.previous, line.previous_step = step_result(reply, outcomes), line.step
        if reply.calls and repeats_itself(session, line, outcomes, workflow.now() - began):
            return Ending(Reason.LOOP_DETECTED)
        if reply.full or decision.next is Next.COMPACT:
            await compact(session, line)
        workflow.set_current_details(current_details(session.start, state, outcomes, workflow.info().namespace))
    return None


def find_limit(session: SessionContext) -> Ending | None:
    """The limit that forbids another step."""
    state = session.state
    if session.spent:
        return session.spent
    limit = find_reached_limit(session.limits, state.step, state.usage.plus(state.recorded))
    return Ending(limit) if limit else None


def repeats_itself(session: SessionContext, line: Line, outcomes: list[ToolOutcome], took: timedelta) -> bool:
    limits = session.limits
    line.trail = loop_detection.extend_trail(line.trail, outcomes, took.total_seconds(), limits.repeats)
    verdict = loop_detection.judge_trail(line.trail, limits.repeats_warning, limits.repeats)
    if verdict is loop_detection.LoopVerdict.WARN:
        line.note = join_notes(line.note, loop_detection.WARNING)
    return verdict is loop_detection.LoopVerdict.BREAK


async def end_answer(session: SessionContext, line: Line, reply: ModelReply) -> Ending | None:
    """The ending after an answer without calls; None if the line continues."""
    if reply.misfit is not None:
        line.misfits += 1
        if line.misfits >= MAX_MISFITS:
            return Ending(Reason.ERROR, "output_schema", reply.misfit)
        line.note = retry_request(reply.misfit)
        return None
    return Ending(Reason.GOAL_REACHED) if await is_done(session, line, reply) else None


async def is_done(session: SessionContext, line: Line, reply: ModelReply) -> bool:
    """Whether an answer ends the line: always for an inline one, else if no message is unread and the criteria hold."""
    if reply.continues:
        return False
    if not line.is_main:
        return True
    if await session.has_unread():
        return False
    return not session.start.acceptance or await meet_criteria(session, line)


# Replies of the model, of a handler or of the agent's own definition.


async def take_step(session: SessionContext, line: Line, *, activates: bool = False) -> ModelReply:
    session.state.step += 1
    line.step = session.state.step
    note, line.note = line.note, None
    hooked = session.has_hooks(line) and not activates
    with session.taking(line) as messages:
        if hooked:
            note = await hooks.before_reply(session, line, messages, note)
        reply = await ask(session, line, Purpose.TURN, messages, note, activates)
    accept(session, line, reply)
    if session.chooses(line):
        session.state.chosen = not (reply.calls or reply.interrupted)
    session.check()
    if hooked:
        await hooks.run_hooks(session, line, HookPoint.AFTER_MODEL, HookSubject(node=reply.head))
    return reply


async def compact(session: SessionContext, line: Line) -> None:
    """Replace what the model is shown by a checkpoint. No message enters here: one that came before it would not be
    shown."""
    accept(session, line, await ask(session, line, Purpose.COMPACT))
    session.check()


def accept(session: SessionContext, line: Line, reply: ModelReply) -> None:
    line.head = reply.head  # an interrupted call has committed what it had, too
    session.state.usage = session.state.usage.plus(reply.usage)
    session.state.recorded = session.state.recorded.plus(reply.recorded or Usage())
    if reply.raised is not None:
        session.raise_limits(reply.raised)


@dataclass
class Tried:
    """What has failed by now of one question to the model."""

    compacted: bool = False
    failed: list[str] = field(default_factory=list)  # models
    unavailable: tuple[str, str] | None = None  # the model that is left, and why: the next call says so


async def ask(
    session: SessionContext,
    line: Line,
    purpose: Purpose,
    take: Sequence[str] = (),
    note: str | None = None,
    activates: bool = False,
) -> ModelReply:
    """Ask until there is a reply. A call that failed has committed nothing, so the next one takes the same messages."""
    tried = Tried()
    if left := line.return_model(workflow.now()):
        tried.unavailable = left, "The first model is asked again."
    while True:
        call = build_model_call(session, line, purpose, take, note, tried)
        if call.begins:
            line.previous = None
        try:
            return await session.wait(_start_call(session, line, call, activates))
        except ActivityError as error:
            session.check()
            await _recover(session, line, call, tried, error)


async def _recover(session: SessionContext, line: Line, call: ModelCall, tried: Tried, error: ActivityError) -> None:
    """Compact a context that no longer fits; switch to the fallback of a model that is unavailable. Nothing else can be
    asked again."""
    kind, message = cause(error)
    tried.unavailable = None
    if kind == wire.CONTEXT_TOO_LONG and call.purpose is Purpose.TURN and not tried.compacted:
        tried.compacted = True
        await compact(session, line)
    elif kind == wire.MODEL_UNAVAILABLE and call.fallback:
        tried.unavailable = call.model, message
        tried.failed.append(call.model)
        line.switch_model(call.fallback, workflow.now())
    elif kind == wire.BUDGET_SPENT:
        raise Ending(Reason.TREE_BUDGET, "tree_budget", message) from error
    elif kind == wire.CANCEL_REQUESTED:  # the row has a cancel whose signal was lost
        session.halt(StopRequest(reason=read_stop_reason(error), by=message))
        raise Stopped from error
    else:
        raise Ending(Reason.ERROR, kind, message) from error


async def activate(session: SessionContext, line: Line) -> None:
    """Start the subagents that begin with a side's prompt. They are calls of a reply, with which the line continues."""
    if session.sides is None or line.activated or line.agent.side not in session.sides.immediate:
        return
    line.activated = True
    line.doing = "Starting subagents"
    reply = await take_step(session, line, activates=True)
    line.doing = ""
    line.pending = reply if reply.calls else None


def _start_call(
    session: SessionContext, line: Line, call: ModelCall, activates: bool
) -> "workflow.ActivityHandle[ModelReply]":
    if activates:
        return activity_calls.call_model(call, activity_calls.ACTIVATE, "immediate subagents")
    if (handler := session.handler_of(line)) is not None:
        return activity_calls.call_model(call, activity_calls.CALL_HANDLER, f"handler {handler}")
    if session.chooses(line) and call.purpose is Purpose.TURN:
        return activity_calls.call_model(call, activity_calls.ATTEMPTS, "attempts")
    return activity_calls.call_model(call)


def build_model_call(
    session: SessionContext,
    line: Line,
    purpose: Purpose,
    take: Sequence[str],
    note: str | None,
    tried: Tried,
) -> ModelCall:
    sides = session.sides
    begins = purpose is Purpose.TURN and not (tried.compacted or tried.failed)
    switched_from, switch_reason = tried.unavailable or (None, None)
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
        fallback=line.next_model([*tried.failed, line.model]),
        purpose=purpose,
        deadline=session.deadline,
        usage=session.state.usage,
        failed_calls=session.state.failed_calls,
        denied_calls=session.state.denied_calls,
        doing=line.doing,
        speaker=sides.speaker(line.agent.side) if sides and line.is_main else None,
        take=list(take),
        note=note,
        begins=begins,
        previous=line.previous if begins else None,
        previous_step=line.previous_step if begins else 0,
        switched_from=switched_from,
        switch_reason=switch_reason,
    )


# Acceptance: a session that reports that it is done is checked against its criteria, and sent back if they fail. A
# violated constraint ends it.


async def meet_criteria(session: SessionContext, line: Line) -> bool:
    """Whether the session may complete. If not, its inbox lists what is missing. The number of rounds is limited."""
    state = session.state
    state.acceptance_round += 1
    check = CheckAcceptance(
        ref=session.start.ref,
        agent=line.agent,
        model=line.model,
        head=line.head,
        step=line.step,
        round=state.acceptance_round,
        version=session.next_version(),
        usage=state.usage,
        workspace_id=session.start.workspace_id,
        sandbox=session.start.sandbox,
    )
    try:
        verdict = await session.wait(activity_calls.check_acceptance(check, until=session.deadline))
    except ActivityError as error:
        session.check()
        raise Ending(Reason.ERROR, *cause(error)) from error
    state.usage = state.usage.plus(verdict.usage)
    session.check()
    if verdict.passed:
        return True
    if verdict.violated:
        raise Ending(Reason.CONSTRAINT_VIOLATED, "constraint_violated", verdict.preview)
    if verdict.message is None:
        raise Ending(Reason.ACCEPTANCE_FAILED, "acceptance_failed", verdict.preview)
    workflow.logger.info("sent back: %s", verdict.preview)
    state.inbox.append(verdict.message)
    return False


# Two sides take turns over one message tree until a rule or a limit ends it.


async def run_sides(session: SessionContext, sides: Sides) -> Ending | None:
    """Run until the session must end. None means that the workflow should continue as new here, between two steps, or
    that another agent has taken over."""
    state = session.state
    while not session.handed_over:
        line = state.line
        side = sides.of(line.agent.side)
        await activate(session, line)
        reply = line.take_pending()
        if reply is None:
            if limit := find_limit(session) or _steps_used(line, side):
                return limit
            if session.history_is_long:
                return None
            line.steps += 1
            reply = await take_step(session, line)
        decision = decide_next(reply)
        if decision.reason is Reason.ERROR:
            return Ending(decision.reason, decision.error_type, decision.error)
        began = workflow.now()
        outcomes = await act(session, line, reply, run_line, last=_ending_tools(side))
        line.previous, line.previous_step = step_result(reply, outcomes), line.step
        ending = await _judge(session, sides, side, reply, decision, outcomes)
        if ending is not None:
            return ending
        if reply.calls and repeats_itself(session, line, outcomes, workflow.now() - began):
            return Ending(Reason.LOOP_DETECTED)
        if reply.full or decision.next is Next.COMPACT:
            line.head = state.line.head  # a side's checkpoint is of its own view, even if the other's turn has begun
            await compact(session, line)
            state.line.head = line.head
        workflow.set_current_details(current_details(session.start, state, outcomes, workflow.info().namespace))
    return None


async def _judge(
    session: SessionContext,
    sides: Sides,
    side: Side,
    reply: ModelReply,
    decision: Decision,
    outcomes: list[ToolOutcome],
) -> Ending | None:
    """Apply the rules of its side to a response: an ending, the other side's turn, or another step."""
    state, line = session.state, session.state.line
    if decision.next in (Next.ASK_AGAIN, Next.COMPACT):  # cut off, so not yet a response that could end a turn
        side = side.model_copy(update={"stop_on_response": False})
    succeeded = {outcome.index for outcome in outcomes if outcome.state == "ok"}
    # A call that failed or was refused ends nothing: its side sees why, and may call again.
    names = [call.name if call.index in succeeded else "" for call in reply.calls]
    turns = sides.max_session_turns if sides.dual else None
    found = judge_response(side, names, ends=reply.ends, steps=line.steps, turns=state.turns, max_session_turns=turns)
    binding = BindingCall(node=reply.head) if reply.ends else None
    if found.call is not None:
        binding = BindingCall(node=reply.head, index=reply.calls[found.call].index)
    match found.verdict:
        case SideVerdict.FAIL_SESSION:
            return Ending(Reason.ERROR, "session_fail", "The session was ended as failed.", binding)
        case SideVerdict.STOP_SESSION:
            return Ending(Reason.GOAL_REACHED, binding=binding) if await is_done(session, line, reply) else None
        case SideVerdict.TURN_LIMIT:
            return Ending(Reason.TURN_LIMIT)
        case SideVerdict.STEP_LIMIT:
            return _out_of_steps(side)
        case SideVerdict.END_TURN if sides.dual:
            state.switch_sides()
        case SideVerdict.END_TURN:
            return await end_answer(session, line, reply)
        case SideVerdict.ACT if decision.next in (Next.ASK_AGAIN, Next.COMPACT):
            line.note = CUT_OFF
        case SideVerdict.ACT if not reply.calls:
            line.note = _not_over(side)
    return None


def _steps_used(line: Line, side: Side) -> Ending | None:
    """The end before a step too many of a side that ended its last turn with the last of its steps."""
    used = side.max_steps is not None and line.steps >= side.max_steps
    return _out_of_steps(side) if used else None


def _out_of_steps(side: Side) -> Ending:
    return Ending(Reason.STEP_LIMIT, "max_steps", STEPS_USED.format(side.label or "A side", side.max_steps))


def _ending_tools(side: Side) -> set[str]:
    bindings = (side.session_stop, side.session_fail)
    return {binding.name for binding in bindings if binding is not None}


def _not_over(side: Side) -> str:
    tools = sorted({*_ending_tools(side), *([side.stop_tool] if side.stop_tool else [])})
    return NOT_OVER.format(f", or end it with {' or '.join(tools)}" if tools else "")
