"""The mail room of a conversation: where outcomes and messages wait, and how they reach a session exactly once."""

from collections import deque
from collections.abc import Awaitable, Callable

from domain.conversations.mailbox import DeliveryMode
from domain.conversations.requests import ChildDone, ConversationInput, OpenSession, SessionDone, Taken
from domain.conversations.state import ConversationState, Live, WaitingMessage
from domain.ids import derive_id
from workflows.conversation.spawning import PARENT_ENDED
from workflows.conversation.starter import SessionStarter

REMEMBERED = 1_000  # delivered ids; beyond that the rows know
MOST_PENDING = 1_000  # in state; the rest waits in the store


class OutcomeRouter:
    def __init__(self, start: ConversationInput, state: ConversationState, starter: SessionStarter) -> None:
        self._start = start
        self._state = state
        self._starter = starter
        self.todo: deque[Callable[[], Awaitable[None]]] = deque()
        self._ended: dict[str, list[str]] = {}  # for each session that is to be told: its children that have ended

    def adopt(self, loaded: ConversationState) -> None:
        """Who is live and what waits is what the store says."""
        self._state.threads, self._state.live, self._state.pending = loaded.threads, loaded.live, loaded.pending
        self._state.title = loaded.title
        for thread_id, thread in self._state.threads.items():
            if thread.queue or thread.inbox or thread.ended:
                self.todo.append(lambda thread_id=thread_id: self._resume(thread_id))  # type: ignore[misc]

    async def work(self) -> None:
        while self.todo:
            await self.todo.popleft()()

    def look(self, thread_id: str) -> None:
        """Something was queued: it begins now if the thread is at rest."""
        if self._state.threads[thread_id].live is None:
            self.todo.append(lambda: self._next(thread_id))

    # the mailbox

    def pending(self, known: list[str]) -> list[str]:
        """What may be drained, in order. The caller read its list in the store, which may be ahead of us or behind."""
        return [*known, *(mail for mail in self._state.pending if mail not in known)]

    def take(self, mail: list[str], by: str, batch: list[str] | None = None) -> None:
        """`batch`: what was asked for; the rest of it had been consumed before, so it is not pending either."""
        gone = batch if batch is not None else mail
        self._state.pending = [waiting for waiting in self._state.pending if waiting not in gone]
        for one in mail:
            self._state.delivered.pop(one, None)
            self._state.delivered[one] = by
        while len(self._state.delivered) > REMEMBERED:
            self._state.delivered.pop(next(iter(self._state.delivered)))

    async def withdraw(self, mail: list[str], by: str) -> None:
        """Outcomes that were read in another way: no session hears of them a second time. What a fire has that waits in
        a queue stays its own, and is given back if the fire is called off."""
        queued = {one for waiting in self._state.queued_mail.values() for one in waiting}
        self.take([one for one in mail if one not in queued], by)
        for thread in self._state.threads.values():
            gone = [waiting for waiting in thread.inbox if waiting.id in mail]
            thread.inbox = [waiting for waiting in thread.inbox if waiting not in gone]
            if (live := thread.live) is not None:  # it may end while it is told
                for waiting in gone:
                    await self._starter.tell(live, "withdrawn", Taken(id=waiting.id))

    def give_back(self, mail: list[str], by: str) -> None:
        """To the front, where they were; unless somebody else has had them since, and this word is late."""
        back = [one for one in mail if self._state.delivered.get(one, by) == by]
        for one in back:
            self._state.delivered.pop(one, None)
        self._state.pending = [*back, *(waiting for waiting in self._state.pending if waiting not in back)]

    # what the end of a session sets in motion

    def session_done(self, done: SessionDone) -> None:
        """All decisions are made here, at once; what has to be awaited is noted down."""
        live = self._state.live.pop(done.session_id, None)
        if live is None:
            return  # told before
        thread = self._state.threads[live.thread]
        thread.live = None if thread.live == done.session_id else thread.live
        thread.last = done.session_id
        thread.inbox = [waiting for waiting in thread.inbox if waiting.id not in done.taken]
        if thread.parent is None:  # a deeper thread finds its own when it is given its next task
            self.give_back(done.given_back, done.session_id)
        for child_id, child in self._state.live.items():
            if child.blocking and child.spawned_by == done.session_id:
                self.todo.append(lambda child_id=child_id: self._stop(child_id))  # type: ignore[misc]
        if live.spawned_by is not None:
            self._route(done, live)
        if thread.queue or thread.inbox:  # its successor may be at work already, and know nothing of them
            self.todo.append(lambda: self._resume(live.thread))

    def _route(self, done: SessionDone, live: Live) -> None:
        spawner = live.spawner
        assert spawner is not None
        recipient = self._state.threads[spawner].live
        if done.mail is not None and not live.blocking:
            if done.mail in self._state.delivered or done.mail in self._state.pending:
                pass  # read before its own word of it came, and perhaps given back since
            elif live.delivery is DeliveryMode.WAKE and not done.held:
                mail = done.mail
                self.todo.append(lambda: self.deliver(spawner, mail, outcome=True))
            elif live.delivery is not DeliveryMode.EXPLICIT and self._state.threads[spawner].parent is None:
                self._state.pending = [*self._state.pending, done.mail][-MOST_PENDING:]
        if recipient is not None:
            if recipient not in self._ended:
                self.todo.append(lambda: self._tell_ended(recipient))
            self._ended.setdefault(recipient, []).append(done.session_id)

    async def _tell_ended(self, recipient: str) -> None:
        """All that have ended by now in one word, so that many children cost few."""
        first, *more = self._ended.pop(recipient)
        await self._starter.tell(recipient, "child_done", ChildDone(session_id=first, more=more))

    async def deliver(self, thread_id: str, message: str, outcome: bool = False) -> None:
        """To the session at work, at its next step; else a new session begins with it."""
        thread = self._state.threads.get(thread_id)
        if thread is None:  # the store was asked meanwhile, and knows of nothing that waits there
            return
        if any(waiting.id == message for waiting in thread.inbox) or message in self._state.delivered:
            return
        waiting = WaitingMessage(id=message, outcome=outcome)
        thread.inbox.append(waiting)
        if thread.live is not None:
            await self._starter.tell(thread.live, "message", Taken(id=waiting.id))
        else:
            await self._next(thread_id)

    async def _resume(self, thread_id: str) -> None:
        """A session at work is told again what it may have missed and hears each once; else the next one begins."""
        thread = self._state.threads.get(thread_id)
        live = thread.live if thread is not None else None  # it may end while it is told; its word sets off the rest
        if thread is None or live is None:
            await self._next(thread_id)
            return
        for waiting in thread.inbox:
            await self._starter.tell(live, "message", Taken(id=waiting.id))
        if thread.ended:
            (first, *more), thread.ended = thread.ended, []
            await self._starter.tell(live, "child_done", ChildDone(session_id=first, more=more))

    async def _next(self, thread_id: str) -> None:
        """Begin what waits on a thread: a queued session, or one for the messages nobody took."""
        thread = self._state.threads.get(thread_id)
        if thread is None or thread.live is not None or not (thread.queue or thread.inbox):
            return
        take = [waiting.id for waiting in thread.inbox]
        outcomes = [waiting.id for waiting in thread.inbox if waiting.outcome]
        session_id = thread.queue[0] if thread.queue else derive_id(take[0], "wake", thread.last)
        fired = self._state.queued_mail.get(session_id, [])
        opening = OpenSession(
            session_id=session_id,
            thread_id=thread_id,
            parent_thread_id=thread.parent,
            take=take,
            mail=outcomes,
        )
        opened = await self._starter.open_one(opening)
        if opened.busy:  # the store let another session begin; it takes the messages when its own word arrives
            thread.live = opened.busy
            self._state.live.setdefault(opened.busy, Live(thread=thread_id))
            await self._resume(thread_id)
            return
        self._state.queued_mail.pop(session_id, None)
        if opened.start is None and session_id in thread.queue:  # called off while it waited: the next one's turn
            thread.queue.remove(session_id)
            self.give_back(fired, session_id)
            await self._next(thread_id)
            return
        self.take(opened.mail, session_id)
        thread.queue = [queued for queued in thread.queue if queued != session_id]
        thread.inbox = [waiting for waiting in thread.inbox if waiting.id not in take]

    async def _stop(self, session_id: str) -> None:
        await self._starter.tell(session_id, "stop", PARENT_ENDED)
