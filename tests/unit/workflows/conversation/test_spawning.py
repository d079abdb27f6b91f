"""Concurrent decisions of a conversation: a spawn and the end of the spawning session, a claim and a fire."""

from typing import Any

import pytest

from domain.conversations.requests import (
    CallRef,
    ConversationState,
    Live,
    OpenBatch,
    OpenedBatch,
    SpawnChild,
    SpawnRequest,
    Thread,
)
from domain.conversations.subagents import DelegationTool
from tests.unit.workflows.conversation.pretend import (
    ROOT,
    PretendStarter,
    Row,
    Store,
    child_of,
    conversation,
    pending,
    run,
)
from workflows.conversation.workflow import PARENT_ENDED


class MeanwhileEnded(PretendStarter):
    """The end of the spawning session is posted while its children are being written."""

    signalled: list[tuple[str, str, Any]]

    async def _write(self, batch: OpenBatch) -> OpenedBatch:
        opened = await super()._write(batch)
        self._state.live.pop("s1")
        return opened

    async def signal(self, session_id: str, name: str, argument: Any) -> None:
        self.signalled.append((session_id, name, argument))


def test_blocking_child_is_stopped_if_its_parent_ended_meanwhile() -> None:
    for blocking in (True, False):
        store = Store()
        made = conversation(store, ConversationState(threads={ROOT: Thread(live="s1")}, live={"s1": Live(thread=ROOT)}))
        store.sessions["s1"] = Row("s1", ROOT)
        made.starter = starter = MeanwhileEnded(made.start, made.state, store)
        starter.signalled, starter.blocking_next = [], blocking
        tool = DelegationTool.TASK if blocking else DelegationTool.ASYNC_TASK
        call = CallRef(node="n", index=0)
        child = SpawnChild(session_id="c1", kind=tool, name="a", prompt=call, session=child_of("s1"))
        spawn = SpawnRequest(
            request_id="r", spawned_by="s1", thread=ROOT, children=[child], max_depth=1, max_children=5
        )
        [answer] = run(made.spawn_children(spawn)).answers
        assert answer.error is None
        assert starter.signalled == ([("c1", "stop", PARENT_ENDED)] if blocking else [])


@pytest.mark.proves("S2-16")
def test_background_agent_is_not_started_without_its_parent() -> None:
    store = Store()
    made = conversation(store, ConversationState(threads={ROOT: Thread()}))
    child = SpawnChild(
        session_id="c1",
        kind=DelegationTool.ASYNC_TASK,
        name="a",
        prompt=CallRef(node="n", index=0),
        session=child_of("s1"),
    )
    spawn = SpawnRequest(request_id="r", spawned_by="s1", thread=ROOT, children=[child], max_depth=1, max_children=5)
    [answer] = run(made.spawn_children(spawn)).answers
    assert answer.error == "The session that asked for it has ended."
    assert "c1" not in store.sessions and list(made.state.threads) == [ROOT]


def test_queued_fire_keeps_its_outcomes_when_another_session_reads_them() -> None:
    made = conversation(Store(), ConversationState(threads={ROOT: Thread()}))
    made.router.take(["m1"], "fired")
    made.state.queued_mail["fired"] = ["m1"]
    assert made.router.withdraw(["m1", "m2"], "reader") == []
    assert made.state.delivered == {"m1": "fired", "m2": "reader"}
    made.router.put_back([pending("m1")], "fired")  # the fire was cancelled
    assert made.state.pending == [pending("m1")]
