"""Each outcome exists once and is delivered once, to the thread that spawned it, in any order of events."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from temporalio.exceptions import ApplicationError

from domain import wire
from domain.conversations.requests import (
    CallRef,
    ConversationState,
    EndedSession,
    Fire,
    Live,
    OpenBatch,
    Opened,
    OpenedBatch,
    OpenSession,
    SpawnChild,
    SpawnRequest,
    StartSession,
    Steer,
    Thread,
    WaitingMessage,
)
from domain.conversations.subagents import DelegationTool
from domain.sessions.session import DeliveryMode
from tests.unit.workflows.conversation.pretend import (
    NEW,
    ROOT,
    PretendStarter,
    Row,
    Store,
    child_of,
    conversation,
    run,
    session_input,
)
from workflows.conversation.router import OutcomeRouter, Resume
from workflows.conversation.workflow import Conversation

TOOLS = st.sampled_from(
    [DelegationTool.ASYNC_DELEGATE, DelegationTool.ASYNC_TASK, DelegationTool.ASYNC_TASK, DelegationTool.TASK]
)
DELIVERIES = st.sampled_from([DeliveryMode.HOLD, DeliveryMode.WAKE, DeliveryMode.WAKE, DeliveryMode.EXPLICIT])


class ConversationMachine(RuleBasedStateMachine):
    """Spawn, step, finish, fail, read, fire, continue, continue-as-new, restart; posts may be late."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.posts: list[EndedSession] = []  # ends that were not delivered yet

    @initialize()
    def open(self) -> None:
        self.store = Store()
        self.conversation = conversation(self.store, ConversationState())
        self._submit()

    # helpers

    def _new(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def _submit(self) -> None:
        """The row first, then the update of the conversation."""
        row = Row(self._new("s"), ROOT)
        assert self.store.accept(row, [], []) is None
        submission = StartSession.model_construct(
            request_id=row.id, session=session_input(row.id), thread_id=ROOT, queued=False
        )
        run(self.conversation.starter.start_accepted(submission))
        self.store.threads.setdefault(ROOT, self.conversation.state.threads[ROOT].model_copy(deep=True))
        self._work()

    def _work(self) -> None:
        run(self.conversation.work_off())

    def _receive(self, post: EndedSession) -> None:
        self.conversation.actions.extend(self.conversation.router.close_session(post))
        self._work()

    def _accept_post(self) -> None:
        """As the signal does; its actions are carried out later."""
        self.conversation.actions.extend(self.conversation.router.close_session(self.posts.pop()))

    def _live(self) -> list[Row]:
        return [row for row in self.store.sessions.values() if row.live]

    # what happens

    @precondition(lambda self: self._live())
    @rule(data=st.data(), tool=TOOLS, delivery=DELIVERIES, name=st.sampled_from("ab"))
    def spawn(self, data: st.DataObject, tool: DelegationTool, delivery: DeliveryMode, name: str) -> None:
        parent = data.draw(st.sampled_from(self._live()))
        child = SpawnChild(
            session_id=self._new("c"),
            kind=tool,
            name=name,
            prompt=CallRef(node="n", index=0),
            session=child_of(parent.id),
            delivery=delivery,
        )
        spawn = SpawnRequest(
            request_id=child.session_id,
            spawned_by=parent.id,
            thread=parent.thread,
            children=[child],
            max_depth=3,
            max_children=6,
        )
        starter = self.conversation.starter
        assert isinstance(starter, PretendStarter)
        starter.blocking_next = tool is DelegationTool.TASK
        [answer] = run(self.conversation.spawn_children(spawn)).answers
        starter.blocking_next = False
        assert (answer.error is None) == (child.session_id in self.store.sessions)
        self._work()

    @precondition(lambda self: self._live())
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """A model call takes the inbox and commits it."""
        row = data.draw(st.sampled_from(self._live()))
        messages, row.inbox = row.inbox, []
        self.store.commit(row, messages)

    @precondition(lambda self: self._live())
    @rule(data=st.data(), committed=st.booleans(), late=st.booleans())
    def finish(self, data: st.DataObject, committed: bool, late: bool) -> None:
        """End a session, more often a younger one, as with real subagents; its post may be late."""
        live = self._live()
        row = data.draw(st.sampled_from([*live, *live[1:], *live[1:]]))
        if committed and row.inbox:
            return  # a session does not complete while messages are unread
        self.posts.append(self.store.finish(row, committed))
        if not late:
            self._receive(self.posts.pop())

    @precondition(lambda self: self.posts)
    @rule(data=st.data(), again=st.booleans())
    def post_arrives(self, data: st.DataObject, again: bool) -> None:
        post = data.draw(st.sampled_from(self.posts))
        if not again:
            self.posts.remove(post)
        self._receive(post)

    @precondition(lambda self: self._live())
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        """A session asks for the result of a child of its thread that has ended."""
        row = data.draw(st.sampled_from(self._live()))
        mail = [name for name, one in self.store.mail.items() if one.thread == row.thread and one.delivered_to is None]
        if mail:
            name = data.draw(st.sampled_from(mail))
            run(self.conversation.carry_out(self.conversation.router.withdraw([name], row.id)))
            self.store.read(name, row.id)

    @rule(early=st.booleans())
    def fire(self, early: bool) -> None:
        """Fire what the rows have. A late post may arrive before the answer."""
        session_id = self._new("f")
        held = self.store.held()
        fire = Fire(request_id=session_id, session_id=session_id, session=NEW)
        starter = self.conversation.starter
        assert isinstance(starter, PretendStarter)
        if early and self.posts:
            starter.meanwhile = self._accept_post
        try:
            run(self.conversation.fire_mailbox(fire))
        except ApplicationError as error:
            assert session_id not in self.store.sessions
            if error.type == wire.MAILBOX_EMPTY:
                assert not held
            else:
                assert error.type == wire.CONVERSATION_BUSY and (self.store.live_on(ROOT) or self.posts)
        else:
            assert self.store.sessions[session_id].inbox == held != []
        starter.meanwhile = lambda: None
        self._work()

    @precondition(lambda self: self.store.live_on(ROOT) is None)
    @rule()
    def submit_another(self) -> None:
        self._submit()

    @rule()
    def continue_as_new(self) -> None:
        state = ConversationState.model_validate_json(self.conversation.state.model_dump_json())
        self.conversation = conversation(self.store, state)

    @rule(dice=st.integers(1, 8))
    def restart(self, dice: int) -> None:
        """The workflow was terminated; its next run knows the store and receives the posts under way."""
        if dice > 1:
            return  # rare, because a restart repairs earlier errors and would hide them
        self.conversation = conversation(self.store, ConversationState())
        self.conversation.actions.extend(self.conversation.router.adopt(self.store.load()))
        self._work()

    # what must hold

    @invariant()
    def delivered_at_most_once(self) -> None:
        read = Counter(name for row in self.store.sessions.values() for name in row.context)
        assert all(count == 1 for count in read.values()), read

    @invariant()
    def delivered_to_the_thread_that_spawned(self) -> None:
        for row in self.store.sessions.values():
            for name in (*row.context, *row.inbox):
                assert self.store.mail[name].thread == row.thread

    @invariant()
    def one_live_session_a_thread(self) -> None:
        threads = Counter(row.thread for row in self._live())
        assert all(count == 1 for count in threads.values())

    def teardown(self) -> None:
        """Let all sessions end and check that nothing was lost."""
        for _ in range(200):
            while self.posts:
                self._receive(self.posts.pop(0))
            if not (live := self._live()):
                break
            row = live[-1]
            for child in self.store.sessions.values():
                if child.spawned_by == row.id and not child.live:
                    assert child.id in row.children_ended or row.id not in self.conversation.state.live
            messages, row.inbox = row.inbox, []
            self.store.commit(row, messages)
            self.posts.append(self.store.finish(row, committed=True))
        assert not self._live()
        for row in self.store.sessions.values():
            if row.spawned_by and row.delivery is not DeliveryMode.EXPLICIT:
                mail = self.store.mail[f"mail-{row.id}"]
                waits = mail.thread == ROOT and f"mail-{row.id}" in self.store.held()
                assert mail.delivered_to or waits or mail.given_back, f"the outcome of {row.id} is lost"
                if mail.delivered_to and not row.blocking:
                    assert f"mail-{row.id}" in self.store.sessions[mail.delivered_to].context
        assert sorted(waiting.id for waiting in self.conversation.state.pending) == sorted(self.store.held())
        assert not self.conversation.state.live


@pytest.mark.proves("S0-B46")
def test_router_delivers_each_outcome_once_and_to_its_spawner() -> None:
    patience = settings(stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(ConversationMachine, settings=patience)


class Ending(PretendStarter):
    """The session posts its end while it is being signalled."""

    signalled: list[str]
    conversation: Conversation

    async def signal(self, session_id: str, name: str, argument: Any) -> None:
        self.signalled.append(session_id)
        row = self.store.sessions[session_id]
        if row.live:
            ended = self.store.finish(row, committed=True)
            self.conversation.actions.extend(self.conversation.router.close_session(ended))


def talk() -> tuple[Conversation, Ending]:
    store = Store()
    made = conversation(store, ConversationState())
    starter = Ending(made.start, made.state, store)
    made.starter = starter
    starter.signalled, starter.conversation = [], made
    assert store.accept(Row("first", ROOT), [], []) is None
    submission = StartSession.model_construct(
        request_id="first", session=session_input("first"), thread_id=ROOT, queued=False
    )
    run(starter.start_accepted(submission))
    return made, starter


@pytest.mark.exactly_once
def test_message_to_session_that_ends_meanwhile_starts_the_next_one() -> None:
    made, starter = talk()
    starter.store.inbox["note"] = None
    steered = run(made.steer_thread(Steer(request_id="r", thread=ROOT, message="note")))
    assert steered.session_id == "first"
    run(made.work_off())
    [after] = [row for row in starter.store.sessions.values() if row.live]
    assert after.id != "first" and after.inbox == ["note"]
    assert made.state.threads[ROOT].live == after.id and not made.state.threads[ROOT].inbox


@pytest.mark.exactly_once
def test_fire_that_is_queued_behind_a_session_that_ends_meanwhile_begins() -> None:
    made, starter = talk()
    written: list[OpenSession] = []

    async def write(batch: OpenBatch) -> OpenedBatch:
        [opening] = batch.sessions
        written.append(opening)
        if opening.queued:
            ended = starter.store.finish(starter.store.sessions["first"], committed=True)
            made.actions.extend(made.router.close_session(ended))
            return OpenedBatch(sessions=[Opened(session_id=opening.session_id)])
        return OpenedBatch(sessions=[Opened(session_id=opening.session_id, start=session_input(opening.session_id))])

    starter._write = write  # type: ignore[method-assign]
    run(made.fire_mailbox(Fire(request_id="f", session_id="f", session=NEW, queue=True)))
    run(made.work_off())
    assert [opening.queued for opening in written] == [True, False]
    assert made.state.threads[ROOT].live == "f" and not made.state.threads[ROOT].queue


def test_subagent_that_a_conversation_does_not_know_is_read_with_its_parent() -> None:
    made, starter = talk()
    assert not starter.reload_needed
    child = session_input("child").model_copy(update={"spawned_by": "first"})
    run(starter.start_accepted(StartSession(request_id="r", session=child, thread_id="child")))
    assert starter.reload_needed


def begin(router: OutcomeRouter, state: ConversationState) -> list[str]:
    """Let the next session begin and end; returns what it was given."""
    opening = router.next_opening(ROOT)
    assert opening is not None
    state.threads[ROOT].live, state.live[opening.session_id] = opening.session_id, Live(thread=ROOT)
    opened = Opened(session_id=opening.session_id, start=session_input(opening.session_id))
    assert router.record_opening(opening, opened) == []
    router.close_session(EndedSession(session_id=opening.session_id))
    return [opening.session_id, *opening.take] if opening.session_id.startswith("queued") else opening.take


def test_messages_read_apart_and_queued_sessions_take_turns() -> None:
    inbox = [WaitingMessage(id=name, apart=True) for name in ("one", "two")]
    thread = Thread(live="now", queue=["queued1", "queued2"], inbox=[*inbox, WaitingMessage(id="note")])
    state = ConversationState(threads={ROOT: thread}, live={"now": Live(thread=ROOT)})
    router = OutcomeRouter(state)
    missed = router.find_missed(ROOT)
    assert missed is not None and missed[1] == ["note"]
    assert router.close_session(EndedSession(session_id="now")) == [Resume(ROOT)]
    assert begin(router, state) == ["one"]
    assert router.receive(ROOT, WaitingMessage(id="three", apart=True))
    assert begin(router, state) == ["queued1", "note"]
    assert begin(router, state) == ["two"]
    assert begin(router, state) == ["queued2"]
    assert begin(router, state) == ["three"]
    assert router.next_opening(ROOT) is None
