"""Time to fire: from the request to the handle of the continuation, with few and with many outcomes in the mailbox."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.lab import Lab
from bench.ours import PATIENCE
from bench.table import Aim, Row
from domain.conversations.subagents import DelegationTool
from domain.ids import new_id
from domain.sessions.new_session import NewSession, Supervision
from domain.sessions.session import DeliveryMode, Reason, SessionRef
from domain.sessions.writes import Acceptance, SessionEnding
from store import sessions

PAUSE = 0.1  # seconds between two polls
TENANT = "default"
REFUSED = "[[fault:400 times=always]]"  # the continuation fails without an answer, so all outcomes are pending again


async def measure(lab: Lab, rounds: int, pending: Sequence[int]) -> list[Row]:
    """Fire the same mailboxes repeatedly."""
    mailboxes = [await _mailbox(lab, size) for size in pending]
    taken: list[list[float]] = [[] for _ in pending]
    for _ in range(rounds):
        for place, (size, conversation_id) in enumerate(zip(pending, mailboxes, strict=True)):
            taken[place].append(await _fire(lab, conversation_id, size))
    return [
        Row(f"fire, {size} pending (bare: {pending[0]})", "ms", taken[place], taken[0], aim=Aim(high=1.5))
        for place, size in enumerate(pending)
    ]


async def _mailbox(lab: Lab, size: int) -> str:
    """A conversation with this many waiting outcomes. The subagents' rows are written directly, because a thousand real
    sessions would take longer than all other measurements."""
    conversation_id = await lab.ours.count(0)
    root = await sessions.get(lab.pool, TENANT, conversation_id)
    assert root is not None
    for _ in range(size):
        child = _child(root, new_id())
        await sessions.accept_and(
            lab.pool, child, lambda connection, made: sessions.finish_session(connection, _ending(made.ref))
        )
    return conversation_id


def _child(root: sessions.SessionRow, child: str) -> Acceptance:
    session = NewSession.for_child(
        root,
        root.agent_ref,
        Supervision(),
        tool=DelegationTool.ASYNC_TASK,
        name="researcher",
        label="a word",
        models=root.models,
        tools=[],
        limits=root.limits,
    )
    ref = SessionRef(tenant=TENANT, session_id=child, conversation_id=root.conversation_id)
    return Acceptance(
        session=session.place(ref, thread_id=child, depth=1, delivery=DeliveryMode.HOLD),
        parent_thread_id=root.thread_id,
        thread_name=child,
    )


def _ending(ref: SessionRef) -> SessionEnding:
    return SessionEnding(ref=ref, reason=Reason.GOAL_REACHED, output="Said.", version=1)


async def _fire(lab: Lab, conversation_id: str, size: int) -> float:
    began = time.perf_counter()
    answer = await lab.api.post(f"/conversations/{conversation_id}/fire", json={"input": REFUSED})
    taken = time.perf_counter() - began
    await _ended(lab, answer.raise_for_status().json()["session_id"])
    await _waiting(lab, conversation_id, size)
    return taken * 1_000


async def _ended(lab: Lab, session_id: str) -> None:
    """Poll the API: on a busy machine the response can come before the workflow exists."""
    await _until(lab, f"/tasks/{session_id}", lambda task: task["ended_at"] is not None)


async def _waiting(lab: Lab, conversation_id: str, size: int) -> None:
    path = f"/conversations/{conversation_id}"
    await _until(lab, path, lambda conversation: conversation["mailbox"]["pending_count"] == size)


async def _until(lab: Lab, path: str, holds: Callable[[Any], bool]) -> None:
    for _ in range(int(PATIENCE / PAUSE)):
        if holds((await lab.api.get(path)).raise_for_status().json()):
            return
        await asyncio.sleep(PAUSE)
    raise RuntimeError(f"{path} did not settle within {PATIENCE:.0f} s")
