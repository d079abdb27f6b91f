"""hand_over: another agent takes the thread over. The call's result, the event and the row are one transaction."""

from pydantic import ValidationError
from temporalio import activity

from activities.attempt import with_heartbeats
from activities.delegation.agent_tools import can_take_over, make_handoff_tool
from activities.delegation.record import DelegationRecord
from activities.model.anthropic import ModelCheck
from activities.tools.offered import subagent_tools
from activities.tools.tool import Tool
from domain import events as ev
from domain.agents.definition import session_sides
from domain.agents.variables import resolve_values
from domain.conversations.subagents import ALREADY_HANDED_OVER, HandOver, HandOverOutcome, Successor, handed_over
from domain.messages import calls_of
from domain.sessions.session import CallState
from store import agents, messages, sessions
from store.database import Pool
from store.sessions import SessionRow


class HandOverRefused(Exception):
    """The handoff is refused and the thread stays with its agent; the text is for the model."""


class HandOverThread:
    def __init__(self, pool: Pool, tools: dict[str, Tool], models: ModelCheck) -> None:
        self._pool = pool
        self._tools = tools
        self._models = models

    @activity.defn(name="hand_over")
    @with_heartbeats
    async def hand_over(self, call: HandOver) -> HandOverOutcome:
        record = DelegationRecord(self._pool, call.ref, call.node)
        session = await sessions.get(self._pool, call.ref.tenant, call.ref.session_id)
        assert session is not None
        known = await record.claim(call.index, call.name, call.summary)
        if known is not None:  # an earlier attempt succeeded, but its result was lost
            return HandOverOutcome(outcome=known, to=session.handed_to if known.state is CallState.OK else None)
        try:
            to = await self._successor(call, session)
        except HandOverRefused as refusal:
            return HandOverOutcome(
                outcome=await record.settle(call.index, call.name, CallState.FAILED, str(refusal), [])
            )
        event = ev.HandedOver(from_agent=call.agent.name, to_agent=to.agent.name, step=call.step)
        outcome = await record.settle(
            call.index, call.name, CallState.OK, handed_over(to.agent.name), [event], handed_to=to
        )
        return HandOverOutcome(outcome=outcome, to=to)

    async def _successor(self, call: HandOver, session: SessionRow) -> Successor:
        """The current definition of the agent that takes over. In a subagent's session it is one too."""
        if call.before is not None:
            raise HandOverRefused(ALREADY_HANDED_OVER.format(call.name, call.before))
        found = await agents.get_current(self._pool, call.ref.tenant, call.name)
        if found is None or not can_take_over(found[1]):
            raise HandOverRefused(f"There is no agent {call.name!r} that could take over any more.")
        ref, agent = found
        [node] = await messages.path(self._pool, call.ref.tenant, call.node, limit=1)
        tool = make_handoff_tool(agent)
        try:
            tool.input.model_validate(calls_of(node)[call.index].arguments)
        except ValidationError as error:
            raise HandOverRefused(tool.explain(error)) from None
        tools = None if session.tools is None else subagent_tools(self._tools, agent)
        sides = session_sides(agent, lambda view: [view.model or call.model, *view.fallback_models])
        ref = ref.model_copy(update={"side": agent.first_side})
        agent = agent.for_side(agent.first_side)
        values = resolve_values(agent, session.variables)
        if missing := [name for name, one in agent.variables.items() if one.required and name not in values]:
            raise HandOverRefused(f"{agent.name} needs variables that this task does not have: {', '.join(missing)}.")
        models = [agent.model or call.model, *agent.fallback_models]
        if problem := await self._models.problem(models[0]):
            raise HandOverRefused(f"Not handed over: {problem}")
        return Successor(agent=ref, models=models, sides=sides, tools=tools)
