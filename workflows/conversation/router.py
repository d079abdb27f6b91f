"""Decides where outcomes and messages go, so that each reaches exactly one session.

The router changes the conversation's state and returns the actions to take as small values; the workflow carries them
out. It never awaits, so no signal can change the state in the middle of a decision.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from domain.conversations.requests import (
    MOST_PENDING,
    ConversationState,
    EndedSession,
    Live,
    Opened,
    OpenSession,
    PendingOutcome,
    WaitingMessage,
)
from domain.ids import derive_id
from domain.sessions.session import DeliveryMode

REMEMBERED = 1_000  # delivered ids; older ones are in the rows


@dataclass(frozen=True)
class StopChild:
    """Stop a child whose parent was waiting for it and has ended."""

    session_id: str


@dataclass(frozen=True)
class SignalEnded:
    """Signal to a session which of its children have ended: all that are known when the signal is sent."""

    session_id: str


@dataclass(frozen=True)
class DeliverOutcome:
    """Put an outcome into a thread's inbox, for its running session or a new one."""

    thread_id: str
    message_id: str
    apart: bool = False


@dataclass(frozen=True)
class WithdrawMessage:
    """Signal to a session that another one has consumed a message of its inbox."""

    session_id: str
    message_id: str


@dataclass(frozen=True)
class Resume:
    """Let a thread continue with its waiting messages."""

    thread_id: str


@dataclass(frozen=True)
class Reload:
    """Read the state from the store again."""


Action = StopChild | SignalEnded | DeliverOutcome | WithdrawMessage | Resume | Reload


class OutcomeRouter:
    def __init__(self, state: ConversationState) -> None:
        self._state = state
        self._ended: dict[str, list[str]] = {}  # the children of each running session that ended since the last signal

    def adopt(self, loaded: ConversationState) -> list[Action]:
        """Load from the store which sessions are live and which messages wait."""
        state = self._state
        state.threads, state.live = loaded.threads, loaded.live
        state.pending, state.title = loaded.pending, loaded.title
        threads = state.threads.items()
        return [Resume(thread_id) for thread_id, thread in threads if thread.queue or thread.inbox or thread.ended]

    # the mailbox

    def take(self, mail: list[str], by: str, gone: Iterable[str] | None = None) -> None:
        """Record that session `by` reads these messages. `gone`: these, and others that were consumed earlier and so
        are not pending either."""
        no_longer = set(mail if gone is None else gone)
        self._state.pending = [waiting for waiting in self._state.pending if waiting.id not in no_longer]
        for message_id in mail:
            self._state.delivered.pop(message_id, None)
            self._state.delivered[message_id] = by
        while len(self._state.delivered) > REMEMBERED:
            self._state.delivered.pop(next(iter(self._state.delivered)))

    def record_fire(self, opened: Opened, known: list[str]) -> None:
        """Record what a fire took, by the rows. Of the outcomes that were `known` before it, none waits any more."""
        self.take(opened.mail, opened.session_id, [*known, *opened.mail])
        if opened.start is None:
            self._state.queued_mail[opened.session_id] = opened.mail

    def withdraw(self, mail: list[str], by: str) -> list[Action]:
        """Record that session `by` read these outcomes, so that no other session receives them. A queued fire keeps its
        own, and returns them if it is cancelled."""
        queued = {message_id for waiting in self._state.queued_mail.values() for message_id in waiting}
        self.take([message_id for message_id in mail if message_id not in queued], by)
        actions: list[Action] = []
        read = set(mail)
        for thread in self._state.threads.values():
            gone = [waiting.id for waiting in thread.inbox if waiting.id in read]
            thread.inbox = [waiting for waiting in thread.inbox if waiting.id not in read]
            if thread.live is not None:
                actions += [WithdrawMessage(thread.live, message_id) for message_id in gone]
        return actions

    def put_back(self, returned: list[PendingOutcome], by: str) -> None:
        """Return outcomes to the front, where they were, unless another session has received them since."""
        back = [outcome for outcome in returned if self._state.delivered.get(outcome.id, by) == by]
        self._forget_delivery(outcome.id for outcome in back)
        ids = {outcome.id for outcome in back}
        others = [waiting for waiting in self._state.pending if waiting.id not in ids]
        self._state.pending = [*back, *others][-MOST_PENDING:]

    # the end of a session

    def close_session(self, ended: EndedSession) -> list[Action]:
        """Decide on everything that follows from the end of a session. A repeated post changes nothing."""
        live = self._state.live.pop(ended.session_id, None)
        if live is None:
            return []
        thread = self._state.threads[live.thread]
        thread.live = None if thread.live == ended.session_id else thread.live
        thread.last = ended.session_id
        taken = set(ended.taken)
        self.take([waiting.id for waiting in thread.inbox if waiting.id in taken], ended.session_id)
        thread.inbox = [waiting for waiting in thread.inbox if waiting.id not in taken]
        if thread.parent is None:  # a deeper thread receives its outcomes again with its next task
            self.put_back(ended.returned, ended.session_id)
        actions: list[Action] = [
            StopChild(child_id)
            for child_id, child in self._state.live.items()
            if child.blocking and child.spawned_by == ended.session_id
        ]
        if live.spawned_by is not None:
            actions += self._route(ended, live)
        if thread.queue or thread.inbox:  # its successor may already be running without them
            actions.append(Resume(live.thread))
        return actions

    def _route(self, ended: EndedSession, live: Live) -> list[Action]:
        assert live.spawner is not None
        actions: list[Action] = []
        if ended.outcome is not None and not live.blocking and not self._is_known(ended.outcome.id):
            if live.delivery in (DeliveryMode.WAKE, DeliveryMode.REPORT) and not ended.held:
                actions.append(DeliverOutcome(live.spawner, ended.outcome.id, ended.outcome.apart))
            elif live.delivery is not DeliveryMode.EXPLICIT and self._state.threads[live.spawner].parent is None:
                self._state.pending = [*self._state.pending, ended.outcome][-MOST_PENDING:]
        recipient = self._state.threads[live.spawner].live
        if recipient is not None:
            if recipient not in self._ended:  # else the signal is already planned and will include this child
                actions.append(SignalEnded(recipient))
            self._ended.setdefault(recipient, []).append(ended.session_id)
        return actions

    def _is_known(self, message_id: str) -> bool:
        """Whether an outcome was read before its post arrived, or returned since."""
        return message_id in self._state.delivered or any(waiting.id == message_id for waiting in self._state.pending)

    def take_ended(self, session_id: str) -> list[str]:
        """The children to name in the next signal to a session."""
        return self._ended.pop(session_id, [])

    # threads

    def resume_queued(self, thread_id: str) -> list[Action]:
        """A session was queued: it starts now if none is running on its thread."""
        return [Resume(thread_id)] if self._state.threads[thread_id].live is None else []

    def receive(self, thread_id: str, message: WaitingMessage) -> bool:
        """Put a message into a thread's inbox. False if there is nothing to do."""
        thread = self._state.threads.get(thread_id)
        # None: the state was reloaded in between, and nothing waits on that thread
        if thread is None or self.has_received(thread_id, message.id):
            return False
        thread.inbox.append(message)
        return True

    def has_received(self, thread_id: str, message_id: str) -> bool:
        """Whether a message waits in a thread's inbox or a session reads it: it was in the rows when they were read, or
        its request is repeated."""
        thread = self._state.threads.get(thread_id)
        waits = thread is not None and any(waiting.id == message_id for waiting in thread.inbox)
        return waits or message_id in self._state.delivered

    def find_reader(self, thread_id: str, message_id: str) -> str | None:
        """The session that reads a message: the one that has it, else the running one."""
        return self._state.delivered.get(message_id) or self.find_live(thread_id)

    def find_live(self, thread_id: str) -> str | None:
        thread = self._state.threads.get(thread_id)
        return thread.live if thread is not None else None

    def find_missed(self, thread_id: str) -> tuple[str, list[str], list[str]] | None:
        """The running session of a thread, with the messages and ended children that it may not have received; it
        ignores those it has seen. None if no session is running there."""
        thread = self._state.threads.get(thread_id)
        if thread is None or thread.live is None:
            return None
        children, thread.ended = thread.ended, []
        return thread.live, [waiting.id for waiting in thread.inbox if not waiting.apart], children

    def next_opening(self, thread_id: str) -> OpenSession | None:
        """The next session of an idle thread: one for a message that has to be read apart, a queued one, or one for the
        messages that no session took. Messages that are read apart and queued sessions take turns."""
        thread = self._state.threads.get(thread_id)
        if thread is None or thread.live is not None or not (thread.queue or thread.inbox):
            return None
        apart = [] if thread.queue and thread.read_apart else [one for one in thread.inbox if one.apart][:1]
        inbox = apart or [waiting for waiting in thread.inbox if not waiting.apart]
        take = [waiting.id for waiting in inbox]
        return OpenSession(
            session_id=thread.queue[0] if thread.queue and not apart else derive_id(take[0], "wake", thread.last),
            thread_id=thread_id,
            parent_thread_id=thread.parent,
            take=take,
            mail=[waiting.id for waiting in inbox if waiting.outcome],
        )

    def record_opening(self, opening: OpenSession, opened: Opened) -> list[Action]:
        """Record the result of `next_opening`. Of a queue the rows' first session begins, which may be another one."""
        thread, session_id = self._state.threads[opening.thread_id], opened.session_id
        if opened.busy:  # the store let another session begin, which takes the messages
            thread.live = opened.busy
            self._state.live.setdefault(opened.busy, Live(thread=opening.thread_id))
            return [Resume(opening.thread_id)]
        fired = self._state.queued_mail.pop(session_id, [])
        was_queued = session_id in thread.queue
        thread.queue = [queued for queued in thread.queue if queued != session_id]
        if opened.start is None and was_queued:  # it was cancelled in the queue, so its outcomes are pending again
            self._forget_delivery(fired)
            return [Reload()]
        if opened.start is not None or opened.over:
            self.take(list(dict.fromkeys([*opened.mail, *opening.take])), session_id)
        taken = set(opening.take)
        apart = any(waiting.apart for waiting in thread.inbox if waiting.id in taken)
        thread.inbox = [waiting for waiting in thread.inbox if waiting.id not in taken]
        if opened.start is not None:
            thread.read_apart = apart
        # if it did not begin, what waits behind it begins
        return [Resume(opening.thread_id)] if apart and opened.start is None else []

    def _forget_delivery(self, mail: Iterable[str]) -> None:
        for message_id in mail:
            self._state.delivered.pop(message_id, None)
