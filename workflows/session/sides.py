"""The loop of an agent with two sides, which take turns over one message tree until a rule or a limit ends it."""

from temporalio import workflow

from domain.agents.definition import Side, Sides
from domain.limits import CUT_OFF, Decision, Next, SideVerdict, decide_next, judge_response
from domain.sessions.session import BindingCall, ModelReply, Purpose, Reason, ToolOutcome
from domain.sessions.session_state import Line
from workflows.session.context import Ending, SessionContext
from workflows.session.loop import (
    activate,
    end_of_answer,
    is_done,
    limit_reached,
    repeats_itself,
    run_line,
    think,
)
from workflows.session.tools import act
from workflows.ui import current_details, step_result

STEPS_USED = "{} has used all steps that it may take in one session ({})."
NOT_OVER = "Your reply did not end your turn. Continue{}."


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
            if limit := limit_reached(session) or _steps_used(line, side):
                return limit
            if session.history_is_long:
                return None
            state.step += 1
            line.step = state.step
            line.steps += 1
            note, line.note = line.note, None
            reply = await think(session, line, Purpose.TURN, session.take(line), note)
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
            await _compact(session, line)
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
            return await end_of_answer(session, line, reply)
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


async def _compact(session: SessionContext, line: Line) -> None:
    """Let a side write the checkpoint of its own view, even if the other side's turn has begun."""
    state = session.state
    line.head = state.line.head
    await think(session, line, Purpose.COMPACT)
    state.line.head = line.head


def _ending_tools(side: Side) -> set[str]:
    bindings = (side.session_stop, side.session_fail)
    return {binding.name for binding in bindings if binding is not None}


def _not_over(side: Side) -> str:
    tools = sorted({*_ending_tools(side), *([side.stop_tool] if side.stop_tool else [])})
    return NOT_OVER.format(f", or end it with {' or '.join(tools)}" if tools else "")
