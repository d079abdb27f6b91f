"""A store and sessions in memory, with what a conversation's decisions need; the code that decides is the real one."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from domain import wire
from domain.conversations.requests import (
    ChildrenEnded,
    ConversationInput,
    ConversationState,
    EndedSession,
    InboxMessage,
    Live,
    OpenBatch,
    Opened,
    OpenedBatch,
    OpenSession,
    PendingOutcome,
    Thread,
    WaitingMessage,
)
from domain.sessions.new_session import NewSession
from domain.sessions.session import AgentRef, DeliveryMode, Limits, SessionRef, Status
from domain.sessions.session_state import SessionInput
from workflows.conversation.workflow import Conversation, SessionStarter

ROOT = "root"
T = TypeVar("T")


LOOP = asyncio.new_event_loop()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return LOOP.run_until_complete(coroutine)


def pending(message_id: str) -> PendingOutcome:
    return PendingOutcome(id=message_id, agent="a", status=Status.COMPLETED)


@dataclass
class Row:
    """A session in the store, and what its workflow knows."""

    id: str
    thread: str
    spawned_by: str | None = None
    spawner: str | None = None
    delivery: DeliveryMode = DeliveryMode.HOLD
    blocking: bool = False
    live: bool = True
    committed: bool = False
    context: list[str] = field(default_factory=list)  # outcomes it has read and committed
    inbox: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    children_ended: set[str] = field(default_factory=set)


@dataclass
class Mail:
    source: str
    thread: str
    delivered_to: str | None = None
    given_back: bool = False


class Store:
    """The rows of the store; each method does what one transaction does."""

    def __init__(self) -> None:
        self.sessions: dict[str, Row] = {}
        self.mail: dict[str, Mail] = {}
        self.inbox: dict[str, str | None] = {}  # outcomes being delivered: message -> the session that took it
        self.threads: dict[str, Thread] = {}

    def live_on(self, thread: str) -> str | None:
        return next((row.id for row in self.sessions.values() if row.thread == thread and row.live), None)

    def held(self) -> list[str]:
        return [
            name
            for name, mail in self.mail.items()
            if mail.thread == ROOT and mail.delivered_to is None and self.inbox.get(name, "-") is not None
        ]

    def accept(self, row: Row, mail: list[str], take: list[str]) -> str | None:
        """None, the busy session's id, or "mail_taken"."""
        if row.id in self.sessions:
            return None
        if (busy := self.live_on(row.thread)) is not None:
            return busy
        if any(self.mail[name].delivered_to is not None for name in mail):
            return "mail_taken"
        self.sessions[row.id] = row
        for name in mail:
            self.mail[name].delivered_to = row.id
        for name in take:
            self.inbox[name] = row.id
        return None

    def commit(self, row: Row, messages: list[str]) -> None:
        row.context += [name for name in messages if name in self.mail]
        for name in messages:
            if name in self.mail and self.mail[name].delivered_to is None:
                self.mail[name].delivered_to = row.id
            self.inbox[name] = row.id

    def read(self, name: str, by: str) -> None:
        if self.mail[name].delivered_to is None:
            self.mail[name].delivered_to = by
            self.sessions[by].context.append(name)
            if self.inbox.get(name, "-") is None:
                self.inbox[name] = by

    def finish(self, row: Row, committed: bool) -> EndedSession:
        row.live, row.committed = False, committed
        back: list[str] = []
        if not committed:
            for name, mail in self.mail.items():
                if mail.delivered_to == row.id and not self.sessions[mail.source].blocking:
                    mail.delivered_to, mail.given_back = None, True
                    back.append(name)
            row.context.clear()
        mine = None
        if row.spawned_by and row.spawner and row.delivery is not DeliveryMode.EXPLICIT:
            mine = f"mail-{row.id}"
            assert mine not in self.mail, "an outcome was written twice"
            self.mail[mine] = Mail(row.id, row.spawner, row.spawned_by if row.blocking else None)
            if row.delivery is DeliveryMode.WAKE and not row.blocking:
                self.inbox[mine] = None
        return EndedSession(
            session_id=row.id,
            outcome=pending(mine) if mine else None,
            returned=[pending(name) for name in back],
            taken=[name for name in row.seen if name not in row.inbox],
        )

    def load(self) -> ConversationState:
        state = ConversationState(pending=[pending(name) for name in self.held()])
        for name, thread in self.threads.items():
            state.threads[name] = Thread(parent=thread.parent, name=thread.name, depth=thread.depth)
        for row in self.sessions.values():
            if row.live:
                state.threads[row.thread].live = row.id
                state.live[row.id] = _live(row)
            elif row.spawned_by and row.spawner and self.sessions[row.spawned_by].live:
                state.threads[row.spawner].ended.append(row.id)
        for name, taker in self.inbox.items():
            if taker is None:
                thread = state.threads[self.mail[name].thread]
                thread.inbox.append(WaitingMessage(id=name, outcome=True))
        return state


def _live(row: Row) -> Live:
    return Live(
        thread=row.thread,
        spawned_by=row.spawned_by,
        spawner=row.spawner,
        blocking=row.blocking,
        delivery=row.delivery,
    )


class PretendStarter(SessionStarter):
    """Writes to the store above and signals its sessions."""

    def __init__(self, start: ConversationInput, state: ConversationState, store: Store) -> None:
        super().__init__(start, state)
        self.store = store
        self.blocking_next = False
        self.meanwhile: Callable[[], None] = lambda: None  # happens after the rows are written and before the answer

    async def _write(self, batch: OpenBatch) -> OpenedBatch:
        written = OpenedBatch(sessions=[self._open(opening) for opening in batch.sessions])
        self.meanwhile()
        return written

    def _open(self, opening: OpenSession) -> Opened:
        take, mail = list(opening.take), list(opening.mail or [])
        if opening.fires and not (mail := self.store.held()):
            return Opened(session_id=opening.session_id, refused="mailbox_empty")
        if opening.parent_thread_id is not None:
            left = [
                name
                for name, one in self.store.mail.items()
                if one.thread == opening.thread_id and one.given_back and one.delivered_to is None and name not in take
            ]
            take, mail = [*left, *take], [*left, *mail]
        if opening.session_id in self.store.sessions:
            return self._opened(opening)
        gone = [name for name in mail if self.store.mail[name].delivered_to is not None]
        mail, take = [name for name in mail if name not in gone], [name for name in take if name not in gone]
        if gone and not mail and not take:
            return Opened(session_id=opening.session_id, refused="mailbox_empty")
        before = [row for row in self.store.sessions.values() if row.thread == opening.thread_id]
        row = Row(opening.session_id, opening.thread_id, spawner=opening.parent_thread_id)
        if opening.session is None and before:
            row.spawned_by, row.delivery = before[-1].spawned_by, before[-1].delivery
        elif opening.session:
            row.spawned_by = opening.session.spawned_by
            row.delivery, row.blocking = opening.delivery or DeliveryMode.HOLD, self.blocking_next
        row.inbox = [*mail, *(name for name in take if name not in mail)]
        thread = self._state.threads[opening.thread_id]
        self.store.threads.setdefault(opening.thread_id, thread.model_copy(deep=True))
        refused = self.store.accept(row, mail, take)
        if refused is not None:
            taken = refused == "mail_taken"
            return Opened(
                session_id=opening.session_id, refused=refused if taken else None, busy=None if taken else refused
            )
        return self._opened(opening)

    def _opened(self, opening: OpenSession) -> Opened:
        known = self.store.sessions[opening.session_id]
        mail = [name for name, one in self.store.mail.items() if one.delivered_to == known.id]
        if not known.live:
            return Opened(session_id=known.id, mail=mail, over=True)
        return Opened(
            session_id=known.id,
            start=session_input(known.id),
            spawned_by=known.spawned_by,
            blocking=known.blocking,
            delivery=known.delivery,
            mail=mail,
        )

    async def _start_child(self, session: SessionInput, live: Live) -> None:
        self._state.live[session.ref.session_id] = live
        self._state.threads[live.thread].live = session.ref.session_id

    async def signal(self, session_id: str, name: str, argument: Any) -> None:
        row = self.store.sessions[session_id]
        if not row.live:
            return
        if name == wire.MESSAGE:
            assert isinstance(argument, InboxMessage)
            if argument.id not in row.seen:
                row.seen.add(argument.id)
                row.inbox.append(argument.id)
        elif name == wire.WITHDRAWN:
            row.inbox = [waiting for waiting in row.inbox if waiting != argument.id]
        elif name == wire.CHILDREN_ENDED:
            assert isinstance(argument, ChildrenEnded)
            row.children_ended.update(argument.session_ids)


NEW = NewSession(agent_owner="*", agent="a", agent_version=1, models=["m"])


def child_of(session_id: str) -> NewSession:
    return NEW.model_copy(update={"spawned_by": session_id})


def session_input(session_id: str) -> SessionInput:
    return SessionInput.model_construct(
        ref=SessionRef(tenant="t", session_id=session_id, conversation_id=ROOT),
        agent=AgentRef(owner="*", name="a", version=1),
        models=["m"],
        limits=Limits(),
    )


def conversation(store: Store, state: ConversationState) -> Conversation:
    """The real router, on the store in memory."""
    start = ConversationInput(tenant="t", conversation_id=ROOT, carried=state)
    made = Conversation(start)
    made.starter = PretendStarter(start, made.state, store)
    return made
