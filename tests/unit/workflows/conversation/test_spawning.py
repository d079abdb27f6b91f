"""Decisions of a conversation that meet at one moment: a spawn and the end of its spawner, a reading and a fire."""

from typing import Any

from domain.conversations.delegation import DelegationTool
from domain.conversations.requests import CallRef, OpenBatch, OpenedBatch, Spawn, SpawnChild
from domain.conversations.state import ConversationState, Live, Thread
from tests.behaviour.workflows.pretend import ROOT, PretendStarter, Row, Store, conversation, run
from workflows.conversation.spawning import PARENT_ENDED, spawn_children


class MeanwhileEnded(PretendStarter):
    """The spawner's last word comes while its children are being written down."""

    told: list[tuple[str, str, Any]]

    async def _write(self, batch: OpenBatch) -> OpenedBatch:
        opened = await super()._write(batch)
        self._state.live.pop("s1")
        return opened

    async def tell(self, session_id: str, name: str, message: Any) -> None:
        self.told.append((session_id, name, message))


def test_a_child_that_is_waited_for_is_stopped_if_its_parent_ended_meanwhile() -> None:
    for blocking in (True, False):
        store = Store()
        made = conversation(store, ConversationState(threads={ROOT: Thread(live="s1")}, live={"s1": Live(thread=ROOT)}))
        store.sessions["s1"] = Row("s1", ROOT)
        starter = MeanwhileEnded(made.start, made.state, store)
        starter.told, starter.blocking_next = [], blocking
        door = DelegationTool.TASK if blocking else DelegationTool.ASYNC_TASK
        child = SpawnChild(session_id="c1", door=door, name="a", prompt=CallRef(node="n", index=0), document="s1")
        spawn = Spawn(request_id="r", spawned_by="s1", thread=ROOT, children=[child], max_depth=1, max_children=5)
        [answer] = run(spawn_children(made.state, starter, spawn)).answers
        assert answer.error is None
        assert starter.told == ([("c1", "stop", PARENT_ENDED)] if blocking else [])


def test_what_a_queued_fire_has_stays_its_own_when_it_is_read() -> None:
    made = conversation(Store(), ConversationState(threads={ROOT: Thread()}))
    made.mail.take(["m1"], "fired")
    made.state.queued_mail["fired"] = ["m1"]
    run(made.mail.withdraw(["m1", "m2"], "reader"))
    assert made.state.delivered == {"m1": "fired", "m2": "reader"}
    made.mail.give_back(["m1"], "fired")  # the fire was called off
    assert made.state.pending == ["m1"]
