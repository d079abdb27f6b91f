"""Time to fire: from the request to the handle of the continuation, with few and with many outcomes in the mailbox."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.lab import Lab
from bench.ours import PATIENCE
from bench.table import Row
from domain.conversations.mailbox import DeliveryMode
from domain.ids import derive_id, new_id
from domain.sessions.session import Reason, Status
from store import endings, sessions

PAUSE = 0.1  # between two looks
TENANT = "default"
REFUSED = "[[fault:400 times=always]]"  # the continuation fails without a word, so all is pending again


async def measure(lab: Lab, rounds: int, pending: Sequence[int]) -> list[Row]:
    """The same mailboxes are fired again and again."""
    mailboxes = [await _mailbox(lab, size) for size in pending]
    taken: list[list[float]] = [[] for _ in pending]
    for _ in range(rounds):
        for place, (size, conversation_id) in enumerate(zip(pending, mailboxes, strict=True)):
            taken[place].append(await _fire(lab, conversation_id, size))
    return [
        Row(f"fire, {size} pending (bare: {pending[0]})", "ms", taken[place], taken[0])
        for place, size in enumerate(pending)
    ]


async def _mailbox(lab: Lab, size: int) -> str:
    """A conversation in which so many outcomes wait. The subagents' rows are written as their sessions would have
    left them: a thousand real ones would take longer than everything else that is measured."""
    conversation_id = await lab.ours.count(0)
    root = await sessions.get(lab.pool, TENANT, conversation_id)
    assert root is not None
    for _ in range(size):
        child = new_id()
        await endings.accept_ended(lab.pool, TENANT, _row(root, child), [], _ending(child), None)
    return conversation_id


def _row(root: sessions.SessionRow, child: str) -> dict[str, Any]:
    same = ("conversation_id", "workspace_id", "agent_owner", "agent", "agent_version", "models", "created_by")
    return {name: getattr(root, name) for name in same} | {
        "id": child,
        "thread_id": child,
        "parent_thread_id": root.thread_id,
        "thread_name": child,
        "depth": 1,
        "session_type": "async_subagent",
        "spawned_by": root.id,
        "trigger": "async_task",
        "title": "a word (@researcher subagent)",
        "spec": "{}",
        "limits": root.limits.model_dump_json(),
        "deadline": root.deadline.isoformat(),
        "subagent_name": "researcher",
        "delivery": DeliveryMode.HOLD,
    }


def _ending(child: str) -> dict[str, Any]:
    return {
        "tenant": TENANT,
        "session_id": child,
        "status": Status.COMPLETED,
        "reason": Reason.GOAL_REACHED,
        "partial": False,
        "output": "Said.",
        "version": 1,
        "message_id": derive_id(child, "outcome"),
        "nodes": [],
        "events": [],
    }


async def _fire(lab: Lab, conversation_id: str, size: int) -> float:
    began = time.perf_counter()
    answer = await lab.api.post(f"/conversations/{conversation_id}/fire", json={"input": REFUSED})
    taken = time.perf_counter() - began
    await _ended(lab, answer.raise_for_status().json()["session_id"])
    await _waiting(lab, conversation_id, size)
    return taken * 1_000


async def _ended(lab: Lab, session_id: str) -> None:
    """By the API: a busy machine may give a handle before it has a workflow."""
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
