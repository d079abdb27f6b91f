"""finish_session: the one ending. Outcome, repaired tail and last event are one transaction. Afterwards the activity
posts the end to the conversation's workflow, if that has begun, which saves a workflow task of the session."""

import contextlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.attempt import run_of, with_heartbeats
from activities.delegation.messages import wake_thread
from activities.events import EventWriter
from activities.model.reply import Contexts
from activities.tools.builtin.agents import SEND_AGENT_MESSAGE
from activities.tools.tool import clean
from domain import events as ev
from domain import wire
from domain.agents.definition import AgentDefinition
from domain.agents.typed_output import Misfit, parse_typed
from domain.conversations.mailbox import name_returned
from domain.conversations.requests import MOST_PENDING, EndedSession, InboxKind, Steer
from domain.events import EventRow, SubagentBudgetExceeded
from domain.ids import derive_id
from domain.json_schema import run_check
from domain.messages import ASSISTANT, INTERRUPTED, TOOL_RESULTS, Node, answer_node, calls_of, text_of, turn_text_of
from domain.sessions.new_session import TaskTerms, apply_terms
from domain.sessions.session import (
    BUDGET_REASONS,
    AgentRef,
    DeliveryMode,
    Finish,
    Finished,
    Reason,
    SessionRef,
    Status,
    StopRequest,
    preview,
)
from domain.sessions.writes import SessionEnding, ThreadMessage
from store import channels, conversations, files, mailbox, messages, sessions, threads, tool_calls, workspaces
from store.agents import UnreadableAgent, load_view
from store.database import Pool
from store.sessions import WrittenEnding
from store.threads import REMINDER
from store.workspaces import Manifest
from workflows.client import WorkflowClient

MOST_ERROR = 2_000  # characters
MOST_FAILURE = 100_000  # characters of a side's failure message, which is the session's result
REPORT_REMINDER = (
    "You have ended without a report to the agent that started you. If there is something to report, send it now with "
    "send_agent_message; otherwise just end."
)

# why calls that were open at the end have no result; the model of the next session reads it
_BECAUSE = {
    Reason.CALLER_CANCEL: "a person stopped the session before the call could report",
    Reason.LOST: "the session crashed before the call could report",
}


@dataclass
class FinishSession:
    _pool: Pool
    _workflows: WorkflowClient
    _events: EventWriter
    _contexts: Contexts

    @activity.defn(name="finish_session")
    @with_heartbeats
    async def finish_session(self, finish: Finish) -> Finished:
        ref = finish.ref
        await self._copy_to_parent(finish)
        written = None
        while written is None:  # a reply that is committed meanwhile belongs to the session
            written = await self._write(finish)
        self._contexts.forget(ref)
        if written.has_workflow:
            await self._post(finish, written.mail, written.given_back, written.held)
        if finish.spawned_by is not None and written.status is Status.COMPLETED:
            await self._remind(ref)
        return Finished(
            status=written.status,
            reason=written.reason,
            partial=written.partial,
            head=written.head,
            preview=preview(written.output or ""),
        )

    async def _write(self, finish: Finish) -> WrittenEnding | None:
        """Write the ending of what the session's row has; None if the row has more by now."""
        ref = finish.ref
        facts = await sessions.load(self._pool, ref)
        finish, nodes = await self._add_unseen(finish, facts.head)
        tail = await self._repair(finish, nodes)
        finish, output = await self._payload(finish, nodes)
        value = await self._value(finish, output, facts.task_terms)
        output = value or output
        replied = any(node.session_id == ref.session_id and node.kind == ASSISTANT for node in nodes)
        await self._events.flush()  # after the end nothing more is written
        ending = _ending(finish, facts.version, output, tail, replied, typed=value is not None)
        written = await sessions.finish_session(self._pool, ending)
        if isinstance(written, StopRequest):  # a cancel that was accepted while the session was ending wins
            cancelled = finish.model_copy(update={"reason": written.reason, "error": None, "error_type": None})
            written = await sessions.finish_session(
                self._pool, _ending(cancelled, facts.version, output, tail, replied)
            )
        assert not isinstance(written, StopRequest)
        return written

    async def _add_unseen(self, finish: Finish, head: str | None) -> tuple[Finish, list[Node]]:
        """The ending with the replies that were committed after the last one that the workflow has seen, and its nodes.
        The workflow does not see a reply whose worker died before it reported, or was slower than the time to stop."""
        seen = await self._contexts.load(finish.ref, "main", finish.head)
        nodes = await self._contexts.load(finish.ref, "main", head) if head not in (None, finish.head) else seen
        known, own = {node.id for node in seen}, finish.ref.session_id
        unseen = [node.id for node in nodes if node.id not in known and node.session_id == own]
        if not unseen or not known <= {node.id for node in nodes}:  # nothing more, or another branch
            return finish, seen
        usage = finish.usage
        for one in await messages.usage_of(self._pool, finish.ref.tenant, unseen):
            usage = usage.plus(one)
        return finish.model_copy(update={"head": head, "usage": usage}), nodes

    async def _copy_to_parent(self, finish: Finish) -> None:
        """Copy the files of a subagent tool to its parent's workspace, before its end is queued."""
        ref = finish.ref
        own = await sessions.get(self._pool, ref.tenant, ref.session_id) if finish.spawned_by else None
        if own is None or own.spawned_by is None or own.subagent is None or own.subagent.explicit:
            return
        found = await files.find_returned(self._pool, ref.tenant, ref.session_id)
        parent = await sessions.get(self._pool, ref.tenant, own.spawned_by) if found else None
        if parent is None:
            return
        paths = name_returned(ref.session_id, [file.name for file in found])
        gained: Manifest = {
            path: {"sha256": file.sha256, "size": file.size, "mode": 0o644}
            for path, file in zip(paths, found, strict=True)
        }
        _, known = await workspaces.get(self._pool, ref.tenant, parent.workspace_id)
        if gained.keys() - known.keys():  # else an earlier attempt has copied them
            await workspaces.update(self._pool, ref.tenant, parent.workspace_id, lambda known: {**known, **gained})

    async def _post(self, finish: Finish, message_id: str | None, returned: list[str], held: bool) -> None:
        """Post the end to the workflow of the conversation. A failure makes the whole activity retry."""
        ref = finish.ref
        # The conversation keeps no more, and Temporal would refuse a signal that is too large.
        ids = [*returned[-MOST_PENDING:], *([message_id] if message_id else [])]
        waiting = await mailbox.preview_messages(self._pool, ref.tenant, ids) if ids else []
        outcome = next((outcome for outcome in waiting if outcome.id == message_id), None)
        if outcome is not None and await channels.find_apart(self._pool, ref.tenant, [outcome.id]):
            outcome = outcome.model_copy(update={"apart": True})
        ended = EndedSession(
            session_id=ref.session_id,
            outcome=outcome,
            returned=[outcome for outcome in waiting if outcome.id != message_id],
            taken=await conversations.messages_taken_by(self._pool, ref.tenant, ref.session_id),
            held=held,
        )
        if not await self._workflows.post(ref.conversation_id, ended):
            raise ApplicationError(
                "Temporal did not take the signal.",
                type=wire.CONVERSATION_UNREACHABLE,
                next_retry_delay=timedelta(seconds=1),
            )

    async def _payload(self, finish: Finish, nodes: list[Node]) -> tuple[Finish, str | None]:
        """The output, and the ending with its error. If a side's tool call ended the session, the call's message
        becomes one or the other."""
        node = next((node for node in reversed(nodes) if finish.binding and node.id == finish.binding.node), None)
        if finish.binding is None or node is None:
            return finish, _output(finish.ref.session_id, nodes)
        failed = finish.reason is not Reason.GOAL_REACHED
        message = text_of(node)
        if finish.binding.index is not None:
            agent = await self._find_agent(finish.agent)
            side = agent.side(finish.agent.side) if agent else None
            call = calls_of(node)[finish.binding.index]
            binding = side and (side.session_fail if failed else side.session_stop)
            message = binding.message(call.arguments, text_of(node)) if binding else ""
        message = clean(message).strip()
        if failed:
            return finish.model_copy(update={"error": message or finish.error}), None
        return finish, message or _output(finish.ref.session_id, nodes)

    async def _value(self, finish: Finish, output: str | None, terms: TaskTerms | None) -> str | None:
        """The answer as JSON, if the agent or the task has an output schema and the answer is JSON."""
        if output is None or finish.reason is not Reason.GOAL_REACHED:
            return None
        agent = await self._find_agent(finish.agent)
        schema = apply_terms(agent, terms).output_schema if agent else None
        if schema is None:
            return None
        try:
            return json.dumps(await run_check(parse_typed, schema, output), ensure_ascii=False)
        except Misfit:
            return None

    async def _find_agent(self, ref: AgentRef) -> AgentDefinition | None:
        """None if it cannot be read any more: its session ends nevertheless."""
        with contextlib.suppress(UnreadableAgent):
            return await load_view(self._pool, ref)
        return None

    async def _repair(self, finish: Finish, nodes: list[Node]) -> list[Node]:
        """Give every unanswered tool call a result, so that a later session can continue from here."""
        if not nodes or not calls_of(nodes[-1]):
            return []
        results = await tool_calls.get_results(self._pool, finish.ref.tenant, nodes[-1].id)
        return [
            Node(
                id=derive_id(nodes[-1].id, "repair"),
                parent=nodes[-1].id,
                session_id=finish.ref.session_id,
                kind=TOOL_RESULTS,
                side=nodes[-1].side,
                step=finish.step,
                body=answer_node(nodes[-1], results, _BECAUSE.get(finish.reason, INTERRUPTED)),
            )
        ]

    async def _remind(self, ref: SessionRef) -> None:
        """Wake a background agent, once, that has ended without a report to the agent that started it, unless this
        session itself answered a reminder. The message is stored first, so a sweep delivers it if need be."""
        own = await sessions.get(self._pool, ref.tenant, ref.session_id)
        if own is None or own.delivery is not DeliveryMode.REPORT:
            return
        agent = await self._find_agent(own.agent_ref)
        tools = own.tools if own.tools is not None else agent.tools if agent else []
        if SEND_AGENT_MESSAGE.name not in tools or await threads.has_reported(self._pool, own):
            return
        message_id = derive_id(ref.session_id, REMINDER)
        message = ThreadMessage(
            id=message_id,
            conversation_id=own.conversation_id,
            thread_id=own.thread_id,
            text=REPORT_REMINDER,
            kind=InboxKind.SYSTEM,
            author=REMINDER,
            unsignalled=True,
        )
        await conversations.add_message(self._pool, ref.tenant, message)
        steer = Steer(request_id=message_id, thread=own.thread_id, message=message_id, wake=True)
        await wake_thread(self._pool, self._workflows, ref.tenant, own.conversation_id, steer)


def _output(session_id: str, nodes: list[Node]) -> str | None:
    """The last text of this session; None if it has none."""
    for node in reversed(nodes):
        if node.session_id == session_id and node.kind == ASSISTANT and (text := turn_text_of(node)):
            return clean(text)
    return None


def _ending(
    finish: Finish, seen: int, output: str | None, tail: list[Node], replied: bool, typed: bool = False
) -> SessionEnding:
    reason = finish.reason
    status = reason.status
    partial = reason is not Reason.GOAL_REACHED and output is not None
    error = clean(finish.error)[: MOST_FAILURE if finish.binding else MOST_ERROR] if finish.error else None
    events: list[ev.Event] = []
    if finish.previous is not None:
        events.append(ev.StepCompleted(step=finish.previous_step, result=finish.previous))
    events.append(ev.MailboxUpdated())  # written only if this ending changes the mailbox
    ended = ev.ENDED[status]
    events.append(ended(status=status, reason=reason, partial=partial, usage=finish.usage, error=error, output=output))
    now = datetime.now(UTC)
    return SessionEnding(
        ref=finish.ref,
        run=run_of(finish.ref),
        reason=reason,
        partial=partial,
        error_type=finish.error_type,
        error=error,
        output=output,
        typed=typed,
        replied=replied,
        head=tail[-1].id if tail else finish.head,
        usage=finish.usage,
        step=finish.step,
        version=finish.version,
        seen=seen,
        nodes=tail,
        events=[*_for_parent(finish, error), *(EventRow.of(finish.ref, event, now) for event in events)],
    )


def _for_parent(finish: Finish, error: str | None) -> list[EventRow]:
    """An event in the spawner's own stream: a budget ended its subagent."""
    if finish.spawned_by is None or finish.reason not in BUDGET_REASONS:
        return []
    event = SubagentBudgetExceeded(child_session_id=finish.ref.session_id, reason=finish.reason, error=error)
    return [EventRow.of(finish.ref.model_copy(update={"session_id": finish.spawned_by}), event)]
