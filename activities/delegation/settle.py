"""The record of delegation calls, which are claimed and answered like any tool call, so that the next model call finds
them; settle_delegation, the result of a call that had to wait; and hand_over, by which another agent takes over."""

from dataclasses import dataclass

from pydantic import ValidationError
from temporalio import activity

from activities.attempt import run_of, with_heartbeats
from activities.delegation.messages import Subagents
from activities.model import recorded
from activities.model.models import Models
from activities.tools.builtin.agents import GatherInput
from activities.tools.offered import can_take_over, make_handoff_tool, subagent_tools
from activities.tools.tool import Tool, bound_text, clean
from domain import events as ev
from domain.agents.definition import session_sides
from domain.agents.variables import resolve_values
from domain.conversations.mailbox import quote, quote_line, subagent_message
from domain.conversations.subagent_texts import describe_ended_turn, describe_gathered, describe_promoted, result
from domain.conversations.subagents import (
    ALREADY_HANDED_OVER,
    DelegationTool,
    HandOver,
    HandOverOutcome,
    LineEnd,
    Settle,
    Successor,
    describe_handover,
)
from domain.events import EventRow
from domain.messages import ASSISTANT, ReplyBody, calls_of, text_of
from domain.policy.rules import Rule
from domain.sessions.session import CallState, Effect, EffectKind, SessionRef, Status, ToolOutcome, preview
from domain.sessions.writes import ToolAttempt, ToolClaim, ToolCommit
from store import agents, events, mailbox, messages, sessions, tool_calls
from store.database import Pool
from store.sessions import SessionRow

HOLDER = "delegation"  # two activities begin and settle one call, so they share its claim


@dataclass
class DelegationRecord:
    _pool: Pool
    _ref: SessionRef
    _node: str

    async def claim(
        self, index: int, tool: str, summary: str, kind: EffectKind | None = None, *, asks: bool = False
    ) -> ToolOutcome | None:
        """Claim the call. None: this activity must make it; else its earlier result."""
        attempt = self._attempt(index, tool)
        claim = await tool_calls.claim(self._pool, ToolClaim.by(attempt, self._ref, summary, kind, asks=asks))
        if claim.go:
            return None
        known = _outcome(index, tool, claim.state or CallState.UNKNOWN, claim.text or "")
        return known.model_copy(update={"spent": claim.spent})

    async def settle(
        self,
        index: int,
        tool: str,
        state: CallState,
        text: str,
        events: list[ev.Event],
        rule: Rule | None = None,
        handed_to: Successor | None = None,
    ) -> ToolOutcome:
        """Record the result of the call; `rule` denied it, `handed_to` runs the session after it."""
        text, _ = bound_text(clean(text), 60_000)
        returned = ev.ToolReturned(tool=tool, state=state, preview=preview(text), rule=rule)
        rows = [EventRow.of(self._ref, event) for event in (*events, returned)]
        await tool_calls.commit(
            self._pool,
            ToolCommit(
                **self._attempt(index, tool).model_dump(exclude={"tool", "effect"}),
                state=state,
                result=text,
                events=rows,
                denied=rule is not None,
                rule=str(rule) if rule else None,
                handed_to=handed_to,
            ),
        )
        return _outcome(index, tool, state, text).model_copy(
            update={"denied": rule is not None, "forbidden": rule is not None}
        )

    async def emit(self, index: int, event: ev.Event) -> None:
        """Emit an event of an open call. The batch is named after the call, so a repetition is written once."""
        await events.append(
            self._pool,
            f"{self._node}/{index}/{event.type}",
            [EventRow.of(self._ref, event)],
            again=activity.info().attempt > 1,
        )

    def _attempt(self, index: int, tool: str) -> ToolAttempt:
        return ToolAttempt(
            tenant=self._ref.tenant,
            session_id=self._ref.session_id,
            run=run_of(self._ref),
            node=self._node,
            call_index=index,
            tool=tool,
            effect=Effect.IDEMPOTENT,
            holder=HOLDER,
            attempt=1,
        )


def _outcome(index: int, tool: str, state: CallState, text: str) -> ToolOutcome:
    return ToolOutcome(index=index, name=tool, state=state.for_model, preview=preview(text, 160))


@dataclass
class SettleDelegation:
    _pool: Pool
    _subagents: Subagents

    @activity.defn(name="settle_delegation")
    @with_heartbeats
    async def settle_delegation(self, settle: Settle) -> ToolOutcome:
        events: list[ev.Event] = []
        if settle.line is not None:
            state, text = await self._end_line(settle, settle.line)
            if settle.line.previous is not None:
                events = [ev.StepCompleted(step=settle.line.previous_step, result=settle.line.previous)]
        elif settle.child is None:
            state, text = CallState.OK, await self._gather(settle)
        elif settle.promoted:
            state, text = CallState.OK, describe_promoted(settle.child)
        else:
            child = await self._subagents.child(settle.ref, settle.child)
            [outcome] = await mailbox.outcomes_of_sessions(self._pool, settle.ref.tenant, [settle.child])
            state = CallState.OK if outcome.status is Status.COMPLETED else CallState.FAILED
            text = result(outcome, child.error_type if child else None)
            if outcome.reference is not None:
                text = subagent_message(outcome, outcome.reference)
                if child is not None and child.terms is not None and child.terms.explicit:
                    state, text = CallState.OK, describe_ended_turn(outcome.reference)
            if settle.tool == DelegationTool.ATTEMPT:  # its answer is the task's if it is chosen
                said = preview(quote_line(outcome.error or outcome.output or ""), 300)
                text = f"{outcome.name} {outcome.status}: {said}"
            events = [ev.SubagentEnded(child_session_id=settle.child, name=outcome.name, status=outcome.status)]
        record = DelegationRecord(self._pool, settle.ref, settle.node)
        return await record.settle(settle.index, settle.tool, state, text, events)

    async def _end_line(self, settle: Settle, line: LineEnd) -> tuple[CallState, str]:
        """The last reply of an inline subagent, after the limit that ended it, if one did. If the recording of a rerun
        ends, the call gets the recorded result."""
        if line.failed == recorded.ENDED:
            [node] = await messages.path(self._pool, settle.ref.tenant, settle.node, limit=1)
            assert isinstance(node.body, ReplyBody)
            known = await recorded.original_result(self._pool, settle.ref.tenant, node.body, settle.index)
            return CallState.FAILED if known.failed else CallState.OK, known.text
        nodes = await messages.path(self._pool, settle.ref.tenant, line.head)
        spoken = [text_of(node) for node in nodes if node.kind == ASSISTANT]
        text = quote(next((reply for reply in reversed(spoken) if reply), "(no output)"))
        if line.failed is None:
            return CallState.OK, text
        return CallState.FAILED, f"The subagent did not finish: {line.failed}. Its last reply:\n{text}"

    async def _gather(self, settle: Settle) -> str:
        [node] = await messages.path(self._pool, settle.ref.tenant, settle.node, limit=1)
        wanted = GatherInput.model_validate(calls_of(node)[settle.index].arguments).task_ids
        found = {task_id: await self._subagents.child(settle.ref, task_id) for task_id in dict.fromkeys(wanted)}
        ended = {task_id: child for task_id, child in found.items() if child is not None and not child.live}
        await self._subagents.claim(settle.ref, list(ended), f"{settle.node}:{settle.index}")
        blocks = [
            result(outcome, ended[outcome.session_id].error_type)
            for outcome in await mailbox.outcomes_of_sessions(self._pool, settle.ref.tenant, list(ended))
        ]
        return describe_gathered(blocks, [task_id for task_id in found if task_id not in ended])


# Handoff: the result of the call, the event and the row are one transaction.


class HandOverRefused(Exception):
    """The handoff is refused and the thread stays with its agent; the text is for the model."""


@dataclass
class HandOverThread:
    _pool: Pool
    _tools: dict[str, Tool]
    _models: Models

    @activity.defn(name="hand_over")
    @with_heartbeats
    async def hand_over(self, call: HandOver) -> HandOverOutcome:
        record = DelegationRecord(self._pool, call.ref, call.node)
        session = await sessions.load(self._pool, call.ref)
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
            call.index, call.name, CallState.OK, describe_handover(to.agent.name), [event], handed_to=to
        )
        return HandOverOutcome(outcome=outcome, to=to)

    async def _successor(self, call: HandOver, session: SessionRow) -> Successor:
        """The current definition of the agent that takes over. In a subagent's session it is one too."""
        if call.before is not None:
            raise HandOverRefused(ALREADY_HANDED_OVER.format(call.name, call.before))
        found = await agents.find_current(self._pool, call.ref.tenant, call.name)
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
