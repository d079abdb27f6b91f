"""finish_session: the one ending. Outcome, repaired tail and last event are one transaction; then it posts the end to
the conversation, which spares the session a workflow task of its own."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.model.contexts import Contexts
from activities.runtime.definitions import Definitions
from activities.runtime.event_writer import EventWriter
from activities.runtime.heartbeat import beating
from activities.tools.support.output import clean
from domain import events as ev
from domain import wire
from domain.agents.typed_output import Misfit, typed
from domain.conversations.requests import EndedSession
from domain.events import SubagentBudgetExceeded
from domain.ids import derive_id
from domain.messages import ASSISTANT, TOOL_RESULTS, Node, answer_calls, calls_of, text_of
from domain.sessions.session import BUDGET_REASONS, Reason
from domain.sessions.step import Finish, Finished, preview
from store import endings, mailbox, tool_calls
from store.database import Pool
from store.events import to_row
from workflows.client import WorkflowClient


class FinishSession:
    def __init__(
        self, pool: Pool, door: WorkflowClient, definitions: Definitions, events: EventWriter, contexts: Contexts
    ) -> None:
        self._pool = pool
        self._door = door
        self._definitions = definitions
        self._events = events
        self._contexts = contexts

    @activity.defn(name="finish_session")
    @beating
    async def finish_session(self, finish: Finish) -> Finished:
        ref = finish.ref
        nodes = await self._contexts.load(ref, "main", finish.head)
        tail = await self._repair(finish, nodes)
        output = _output(ref.session_id, nodes)
        value = await self._value(finish, output)
        output = value or output
        late = await self._events.take(ref) + await self._open_calls(finish)
        replied = any(node.session_id == ref.session_id and node.kind == ASSISTANT for node in nodes)
        document = _document(finish, output, tail, late) | {"replied": replied}
        stands = await endings.finish(self._pool, document | {"typed": value is not None})
        if "cancel_requested" in stands:  # accepted while the session was about to end: the cancel wins
            reason = Reason(json.loads(stands["cancel_requested"])["reason"])
            cancelled = finish.model_copy(update={"reason": reason, "error": None, "error_type": None})
            document = _document(cancelled, output, tail, late) | {"replied": replied}
            stands = await endings.finish(self._pool, document)
        self._contexts.forget(ref)
        finished = Finished(
            status=stands["status"],
            reason=stands["reason"],
            partial=stands["partial"],
            head=stands["head"],
            preview=preview(stands["output"] or ""),
        )
        await self._post(finish, stands["mail"], stands["given_back"], stands["held"])
        return finished

    async def _post(self, finish: Finish, message_id: str | None, returned: list[str], held: bool) -> None:
        """Post the end to the conversation, if it has begun. A failure lets the whole activity be retried."""
        ref, ids = finish.ref, [*returned, *([message_id] if message_id else [])]
        waiting = await mailbox.pending_outcomes(self._pool, ref.tenant, ids) if ids else []
        ended = EndedSession(
            session_id=ref.session_id,
            outcome=next((outcome for outcome in waiting if outcome.id == message_id), None),
            returned=[outcome for outcome in waiting if outcome.id != message_id],
            taken=finish.taken,
            held=held,
        )
        if not await self._door.post(ref.conversation_id, ended):
            raise ApplicationError(
                "Temporal did not take the signal.",
                type=wire.CONVERSATION_UNREACHABLE,
                next_retry_delay=timedelta(seconds=1),
            )

    async def _value(self, finish: Finish, output: str | None) -> str | None:
        """The answer as JSON, if it is one and the agent has an output schema."""
        agent = await self._definitions.load(finish.agent)
        if agent.output_schema is None or output is None or finish.reason is not Reason.GOAL_REACHED:
            return None
        try:
            return json.dumps(typed(agent.output_schema, output), ensure_ascii=False)
        except Misfit:
            return None

    async def _open_calls(self, finish: Finish) -> list[dict[str, Any]]:
        """Watchers see every call end, also one that a stop left waiting."""
        names = await tool_calls.open_of_session(self._pool, finish.ref.tenant, finish.ref.session_id)
        closed = [ev.ToolReturned(tool=name, state="cancelled", preview="The session ended first.") for name in names]
        return [to_row(finish.ref, event) for event in closed]

    async def _repair(self, finish: Finish, nodes: list[Node]) -> list[Node]:
        """Give every dangling tool call an answer, so that a later session can go on from here."""
        if not nodes or not (calls := calls_of(nodes[-1])):
            return []
        results = await tool_calls.results(self._pool, finish.ref.tenant, nodes[-1].id)
        return [
            Node(
                id=derive_id(nodes[-1].id, "repair"),
                parent=nodes[-1].id,
                session_id=finish.ref.session_id,
                kind=TOOL_RESULTS,
                step=finish.step,
                body=json.dumps(answer_calls(calls, results)),
            )
        ]


def _output(session_id: str, nodes: list[Node]) -> str | None:
    """The last words this session spoke; None if it never spoke."""
    for node in reversed(nodes):
        if node.session_id == session_id and node.kind == ASSISTANT and (text := text_of(node)):
            return clean(text)
    return None


def _document(finish: Finish, output: str | None, tail: list[Node], late: list[dict[str, Any]]) -> dict[str, Any]:
    reason = finish.reason
    status = reason.status
    partial = reason is not Reason.GOAL_REACHED and output is not None
    error = clean(finish.error)[:2_000] if finish.error else None
    events: list[ev.Event] = []
    if finish.previous is not None:
        events.append(ev.StepCompleted(step=finish.previous_step, result=finish.previous))
    events.append(ev.MailboxUpdated())  # kept only if this ending changes the mailbox
    ended = ev.ENDED[status]
    events.append(ended(status=status, reason=reason, partial=partial, usage=finish.usage, error=error, output=output))
    now = datetime.now(UTC)
    late = late + _for_parent(finish, error)
    return {
        "tenant": finish.ref.tenant,
        "session_id": finish.ref.session_id,
        "status": status,
        "reason": reason,
        "partial": partial,
        "error_type": finish.error_type,
        "error": error,
        "output": output,
        "head": tail[-1].id if tail else finish.head,
        "usage": finish.usage.model_dump_json(),
        "step": finish.step,
        "version": finish.version,
        "message_id": derive_id(finish.ref.session_id, "outcome"),
        "nodes": [{**node.model_dump(), "idem": f"{node.id}/repair"} for node in tail],
        "events": late + [to_row(finish.ref, event, now) for event in events],
    }


def _for_parent(finish: Finish, error: str | None) -> list[dict[str, Any]]:
    """Whoever sent off a subagent learns in its own stream that a budget ended it."""
    if finish.spawned_by is None or finish.reason not in BUDGET_REASONS:
        return []
    told = SubagentBudgetExceeded(child_session_id=finish.ref.session_id, reason=finish.reason, error=error)
    return [to_row(finish.ref.model_copy(update={"session_id": finish.spawned_by}), told)]
