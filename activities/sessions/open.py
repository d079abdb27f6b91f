"""open_sessions: writes sessions down for the conversation that decided on them; each id is written once."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity

from activities.runtime.heartbeat import beating
from domain import events as ev
from domain import wire
from domain.conversations.mailbox import DeliveryMode, caller_block, render
from domain.conversations.requests import OpenBatch, Opened, OpenedBatch, OpenSession
from domain.ids import derive_id
from domain.messages import Node, calls_of
from domain.sessions.session import SessionRef
from domain.sessions.step import preview
from store import accepting, conversations, mailbox, messages, outcomes, sessions
from store.accepting import NewMessage
from store.database import Pool
from store.events import to_row
from store.sessions import SessionRow

WOKEN = "async_subagent_result"


class OpenSessions:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._last: tuple[str, Node] | None = None

    @activity.defn(name="open_sessions")
    @beating
    async def open_sessions(self, batch: OpenBatch) -> OpenedBatch:
        """All in one transaction: the children of one step may be many."""
        known = await sessions.by_ids(self._pool, batch.tenant, [opening.session_id for opening in batch.sessions])
        answers: dict[str, Opened] = {}
        new: list[tuple[OpenSession, dict[str, Any]]] = []
        for opening in batch.sessions:
            if opening.session_id in known:
                answers[opening.session_id] = await self._again(batch, opening)
            elif (acceptance := await self._acceptance(batch, opening)) is None:
                answers[opening.session_id] = Opened(session_id=opening.session_id, refused=wire.MAILBOX_EMPTY)
            else:
                new.append((opening, acceptance))
        answers |= await self._accept(batch, new) if new else {}
        return OpenedBatch(sessions=[answers[opening.session_id] for opening in batch.sessions])

    async def _again(self, batch: OpenBatch, opening: OpenSession) -> Opened:
        """One that waits in a queue begins; one that was opened before is answered as it stands."""
        busy = None
        if opening.document is None:
            await self._drop_delivered(batch, opening)
            busy = await sessions.begin_queued(self._pool, batch.tenant, opening.session_id, opening.take)
        if busy is not None and busy != opening.session_id:
            return Opened(session_id=opening.session_id, busy=busy)
        session = await sessions.get(self._pool, batch.tenant, opening.session_id)
        assert session is not None
        return _opened(session, await mailbox.delivered_to(self._pool, batch.tenant, session.id))

    async def _acceptance(self, batch: OpenBatch, opening: OpenSession) -> dict[str, Any] | None:
        """What is to be written; None if what it was to be opened with is gone."""
        if opening.mail or not opening.document:
            await self._drop_delivered(batch, opening)
            if not (opening.mail if opening.document else opening.take):
                return None
        if opening.parent_thread_id is not None and opening.thread_id != opening.session_id:
            # nobody can fire a deeper thread: what its last session gave back comes with its next one
            left = await mailbox.given_back(self._pool, batch.tenant, opening.thread_id)
            left = [one for one in left if one not in opening.take]
            opening.take, opening.mail = [*left, *opening.take], [*left, *(opening.mail or [])]
        document = await self._document(batch, opening)
        ref = SessionRef(tenant=batch.tenant, session_id=opening.session_id, conversation_id=batch.conversation_id)
        told: list[ev.Event] = [
            ev.TaskSubmitted(agent=document["agent"], agent_version=document["agent_version"], title=document["title"])
        ]
        if opening.mail:
            told.append(ev.MailboxUpdated())
        return accepting.acceptance(
            batch.tenant,
            document,
            await self._inbox(batch, opening),
            [to_row(ref, event) for event in told],
            live_quota=opening.live_quota,
            take=opening.take if opening.parent_thread_id or not opening.document else [],
            mail=opening.mail or None,
            queue=opening.queued,
            spawns=opening.prompt is not None,
        )

    async def _accept(self, batch: OpenBatch, new: list[tuple[OpenSession, dict[str, Any]]]) -> dict[str, Opened]:
        accepted = await accepting.accept_all(self._pool, [acceptance for _, acceptance in new])
        rows = await sessions.by_ids(self._pool, batch.tenant, [opening.session_id for opening, _ in new])
        answers: dict[str, Opened] = {}
        for (opening, _), answer in zip(new, accepted, strict=True):
            session_id = opening.session_id
            if answer.refused:
                answers[session_id] = Opened(session_id=session_id, refused=answer.refused)
            elif answer.busy is not None:
                answers[session_id] = Opened(session_id=session_id, busy=answer.busy)
            else:
                answers[session_id] = _opened(rows[session_id], opening.mail or [])
        return answers

    async def _drop_delivered(self, batch: OpenBatch, opening: OpenSession) -> None:
        """The rows decide: what was consumed meanwhile is left out."""
        wanted = opening.mail or []
        opening.mail = await mailbox.undelivered(self._pool, batch.tenant, wanted)
        if not opening.document:
            others = [taken for taken in opening.take if taken not in wanted]
            there = {*opening.mail, *await conversations.untaken(self._pool, batch.tenant, others)}
            opening.take = [taken for taken in opening.take if taken in there]

    async def _document(self, batch: OpenBatch, opening: OpenSession) -> dict[str, Any]:
        document = json.loads(opening.document) if opening.document else await self._like_before(batch, opening)
        document |= {
            "id": opening.session_id,
            "conversation_id": batch.conversation_id,
            "thread_id": opening.thread_id,
            "parent_thread_id": opening.parent_thread_id,
            "thread_name": opening.thread_name or None,
            "depth": opening.depth,
        }
        if opening.delivery is not None:
            document["delivery"] = opening.delivery
        if document.get("ttl_ms") is not None:
            document["deadline"] = (datetime.now(UTC) + timedelta(milliseconds=document.pop("ttl_ms"))).isoformat()
        return document

    async def _like_before(self, batch: OpenBatch, opening: OpenSession) -> dict[str, Any]:
        """A thread that is woken goes on as the agent it was, and reports to whom it reported before."""
        before = await sessions.newest_of_thread(self._pool, batch.tenant, opening.thread_id)
        assert before is not None
        opening.depth = before.depth
        return {
            "workspace_id": before.workspace_id,
            "session_type": before.session_type,
            "spawned_by": before.spawned_by,
            "trigger": WOKEN,
            "agent_owner": before.agent_owner,
            "agent": before.agent,
            "agent_version": before.agent_version,
            "models": before.models,
            "title": before.title,
            "spec": json.dumps(before.spec),
            "limits": before.limits.model_dump_json(),
            "ttl_ms": before.limits.ttl_ms,
            "created_by": before.created_by,
            "delivery": before.delivery,
            "await_children": before.await_children,
            "subagent_name": before.subagent_name,
            "tools": before.tools,
            "rules": json.dumps([[rule.model_dump(mode="json") for rule in layer] for layer in before.rules]),
            "may_ask": before.may_ask,
            "approval_required": before.approval_required,
            "external_tools": json.dumps([tool.model_dump() for tool in before.external_tools]),
            "variables": json.dumps(before.variables),
            "missing": json.dumps(before.missing),
            "dry_run": before.dry_run,
            "retention_ms": before.retention_ms,
        }

    async def _node(self, batch: OpenBatch, node_id: str) -> Node:
        """The children of one step share it, and a node never changes."""
        if self._last is None or (self._last[0], self._last[1].id) != (batch.tenant, node_id):
            [node] = await messages.path(self._pool, batch.tenant, node_id, limit=1)
            self._last = (batch.tenant, node)
        return self._last[1]

    async def _inbox(self, batch: OpenBatch, opening: OpenSession) -> list[NewMessage]:
        """The message that opens the session: a prompt from a tool call, or what the mailbox brings."""
        if opening.prompt is not None:
            node = await self._node(batch, opening.prompt.node)
            text = calls_of(node)[opening.prompt.index]["input"]["prompt"]
            return [_message(opening, [text], author=node.author)]
        if opening.mail and opening.document:  # a fire
            sources = await mailbox.sources(self._pool, batch.tenant, opening.mail)
            texts = [render(await outcomes.of_sessions(self._pool, batch.tenant, sources))]
            own = [await conversations.message_text(self._pool, batch.tenant, taken) for taken in opening.take]
            if message := "\n\n".join(own):
                texts.append(caller_block(message))
            return [_message(opening, texts, author="mailbox")]
        return []


def _opened(session: SessionRow, mail: list[str]) -> Opened:
    if not session.live:
        return Opened(session_id=session.id, mail=mail, over=session.status.terminal)
    return Opened(
        session_id=session.id,
        start=session.workflow_input(),
        spawned_by=session.spawned_by,
        blocking=session.blocking,
        delivery=session.delivery or DeliveryMode.HOLD,
        mail=mail,
    )


def _message(opening: OpenSession, texts: list[str], author: str) -> NewMessage:
    return NewMessage(
        id=derive_id(opening.session_id, "opening"),
        author=preview(author, 100),
        parts=json.dumps([{"type": "text", "text": text} for text in texts]),
    )
