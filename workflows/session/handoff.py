"""Handoff inside a session: the agent of its main line changes, and the line continues with its history."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from domain.conversations.handoff import HandOver, Successor
from domain.sessions.session_state import Line
from domain.sessions.step import CallState, ModelReply, ToolCall, ToolOutcome
from workflows import activity_calls
from workflows.session.context import SessionContext, cause
from workflows.ui import AGENT


def is_handoff(call: ToolCall) -> bool:
    return call.activity == activity_calls.HAND_OVER.name


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
