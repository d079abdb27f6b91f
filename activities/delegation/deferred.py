"""Calls of subagents whose variables lack values: each call is stored, and its subagent begins once they are set."""

from activities.delegation.child_plan import Planned
from activities.delegation.record import DelegationRecord
from domain import events as ev
from domain.conversations.delegation import DelegationCall, DelegationTool
from domain.conversations.requests import Spawn, SpawnerThread
from domain.conversations.variable_request import VariableRequest
from domain.errors import Refusal
from domain.ids import derive_id
from domain.sessions.step import CallState, ToolOutcome
from store import sessions, variable_requests
from store.database import Pool
from store.sessions import SessionRow
from workflows.client import WorkflowClient


class DeferredCalls:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def keep(
        self,
        call: DelegationCall,
        record: DelegationRecord,
        index: int,
        tool: str,
        planned: Planned,
        parent: SessionRow,
        spawn: Spawn,
    ) -> ToolOutcome:
        """Store one call as it was made. Its result lists the missing values and the place to set them."""
        request = VariableRequest(
            id=derive_id(call.node, "variables", index),
            tenant=call.ref.tenant,
            conversation_id=call.ref.conversation_id,
            thread_id=parent.thread_id,
            session_id=call.ref.session_id,
            agent=planned.agent.name,
            name=planned.name,
            instance=tool == DelegationTool.SUBAGENT_CREATE,
            needs=planned.needs,
            spawn=spawn.model_copy(update={"deferred": await self._thread(parent)}),
        )
        request = await variable_requests.open_request(self._pool, request)
        required = ev.VariablesRequired(
            request_id=request.id,
            thread_id=request.thread_id,
            agent=request.agent,
            name=request.name,
            missing=request.missing_names,
        )
        return await record.settle(index, tool, CallState.FAILED, request.for_model(), [required])

    async def _thread(self, parent: SessionRow) -> SpawnerThread:
        """The position of the parent's thread in its conversation, for a start after the parent has ended."""
        above = await sessions.get(self._pool, parent.tenant, parent.spawned_by) if parent.spawned_by else None
        return SpawnerThread(
            parent=above.thread_id if above else None, name=parent.subagent_name or parent.agent, depth=parent.depth
        )


async def start_deferred(pool: Pool, conversations: WorkflowClient, request: VariableRequest) -> None:
    """Ask the conversation to start a subagent whose values are set. Ids derive from the first call, so it starts
    once."""
    try:
        answer = await conversations.spawn(request.tenant, request.conversation_id, request.spawn)
        started = answer.answers[0].error is None
    except Refusal:  # the conversation was terminated
        started = False
    await variable_requests.settle(pool, request, started=started)
