"""settle_delegation: records the result of a delegation call that had to wait."""

from temporalio import activity

from activities.attempt import with_heartbeats
from activities.delegation.messages import Subagents
from activities.delegation.record import DelegationRecord
from activities.model import recorded as recording
from activities.tools.builtin.agents import GatherInput
from domain import events as ev
from domain.conversations.mailbox import quote, subagent_message
from domain.conversations.subagent_texts import ended_its_turn, gathered, promoted, result
from domain.conversations.subagents import DelegationTool, Settle
from domain.messages import ASSISTANT, ReplyBody, calls_of, text_of
from domain.sessions.session import CallState, Status, ToolOutcome
from store import mailbox, messages
from store.database import Pool


class SettleDelegation:
    def __init__(self, pool: Pool, subagents: Subagents) -> None:
        self._pool = pool
        self._subagents = subagents

    @activity.defn(name="settle_delegation")
    @with_heartbeats
    async def settle_delegation(self, settle: Settle) -> ToolOutcome:
        events: list[ev.Event] = []
        if settle.tool is DelegationTool.DELEGATE:
            state, text = await self._inline(settle)
            if settle.previous is not None:
                events = [ev.StepCompleted(step=settle.previous_step, result=settle.previous)]
        elif settle.tool is DelegationTool.GATHER:
            state, text = CallState.OK, await self._gather(settle)
        elif settle.promoted:
            assert settle.child is not None
            state, text = CallState.OK, promoted(settle.child)
        else:
            assert settle.child is not None
            child = await self._subagents.child(settle.ref, settle.child)
            [outcome] = await mailbox.outcomes_of_sessions(self._pool, settle.ref.tenant, [settle.child])
            state = CallState.OK if outcome.status is Status.COMPLETED else CallState.FAILED
            text = result(outcome, child.error_type if child else None)
            if outcome.reference is not None:
                text = subagent_message(outcome, outcome.reference)
                if child is not None and child.terms is not None and child.terms.explicit:
                    state, text = CallState.OK, ended_its_turn(outcome.reference)
            events = [ev.SubagentEnded(child_session_id=settle.child, name=outcome.name, status=outcome.status)]
        record = DelegationRecord(self._pool, settle.ref, settle.node)
        return await record.settle(settle.index, settle.name or settle.tool, state, text, events)

    async def _inline(self, settle: Settle) -> tuple[CallState, str]:
        """The last reply of an inline subagent, after the limit that ended it, if one did. If the recording of a rerun
        ends, the call gets the recorded result."""
        if settle.failed == recording.ENDED:
            [node] = await messages.path(self._pool, settle.ref.tenant, settle.node, limit=1)
            assert isinstance(node.body, ReplyBody)
            known = await recording.original_result(self._pool, settle.ref.tenant, node.body, settle.index)
            return CallState.FAILED if known.failed else CallState.OK, known.text
        nodes = await messages.path(self._pool, settle.ref.tenant, settle.head)
        spoken = [text_of(node) for node in nodes if node.kind == ASSISTANT]
        text = quote(next((reply for reply in reversed(spoken) if reply), "(no output)"))
        if settle.failed is None:
            return CallState.OK, text
        return CallState.FAILED, f"The subagent did not finish: {settle.failed}. Its last reply:\n{text}"

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
        return gathered(blocks, [task_id for task_id in found if task_id not in ended])
