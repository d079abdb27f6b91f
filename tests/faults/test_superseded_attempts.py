"""A worker that is frozen during a call and wakes up after another one has taken the call over."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.launch import second_worker
from tests.support.stack import Stack, eventually, of_type

FEW = "[[script:say words=24 delay=0.25]]"  # the reply has ended when its first worker wakes up
MANY = "[[script:say words=60 delay=0.25]]"  # it is still streamed then


async def worker_of(stack: Stack, task_id: str) -> int | None:
    """The process that makes the task's current call; None if it has none."""
    described = await stack.session(task_id).describe()
    pending = described.raw_description.pending_activities
    return int(pending[0].last_worker_identity.rpartition("/")[2]) if pending else None


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def streams(stack: Stack, task_id: str, attempt: int) -> None:
    """Wait until this attempt of the model call has streamed something."""

    async def look() -> bool:
        texts = attempts(await stack.events(task_id))
        return len(texts) >= attempt and bool(texts[-1])

    await eventually(look, what=f"attempt {attempt} of {task_id} streams")


def attempts(events: list[dict[str, Any]]) -> list[str]:
    """The text that each attempt streamed."""
    texts = [""]
    for event in of_type(events, "attempt_reset", "message_delta"):
        if event["type"] == "attempt_reset":
            texts.append("")
        else:
            texts[-1] += event["text"]
    return texts


async def test_attempt_that_was_taken_over_adds_nothing_to_the_stream(stack: Stack, tmp_path: Path) -> None:
    with stack.frozen_supervisor(), second_worker(stack, tmp_path):
        tasks = [await stack.submit(text) for text in (FEW, MANY) for _ in range(4)]
        await streams(stack, tasks[-1], 1)
        workers = {task_id: await worker_of(stack, task_id) for task_id in tasks}
        pid = next(one for one in reversed(workers.values()) if one is not None)
        # Once only: polls that a frozen worker left open still take attempts, a heartbeat timeout and a backoff each.
        with frozen(pid):
            for task_id in [one for one in tasks if workers[one] == pid]:
                await streams(stack, task_id, 2)
        ended = [await stack.wait(task_id) for task_id in tasks]
    for task_id, record in zip(tasks, ended, strict=True):
        events = await stack.events(task_id)
        [message] = of_type(events, "message")
        *others, last = attempts(events)
        assert last == message["text"], (others, last)
        assert all(message["text"].startswith(one) for one in others), others
        kinds = [event["type"] for event in events]
        assert not {"attempt_reset", "message_delta"} & set(kinds[kinds.index("message") :])
        assert (record["status"], kinds.count("usage_updated")) == ("completed", 1)
    for some in (tasks[:4], tasks[4:]):
        assert max([len(attempts(await stack.events(task_id))) for task_id in some]) > 1
