"""Our side of each measurement: a task submitted over HTTP and waited for until its workflow has closed."""

import asyncio

import httpx2
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from bench.peers.script import prompt
from domain.ids import session_workflow_id
from domain.sessions.session import SessionResult, Status

AGENT = "assistant"
LOOKER = "bench-looker"
LOOKS = {"description": "Looks at things.", "prompt": "You look at things.", "tools": ["look"]}
WRITES = '[[script:count n={} tool=write_file input={{"path": "a.txt", "content": "x"}}]]'
REPORTS = "[[script:count n={} tool=report_progress]]"
PIECES = 600  # of a long reply, as the offline model sends it: three words each
PATIENCE = 300.0  # seconds for one session, so that a dead worker does not block the bench


def counting(steps: int, *, grow: int = 0) -> str:
    """A task of this many steps of one tool call each; with `grow` the context grows by this many bytes a step."""
    return f"[[script:count n={steps} grow={grow}]]" if steps else "[[script:say]]"


def speaking(steps: int) -> str:
    """A task whose reply arrives in many pieces, each for itself; it has no steps before it."""
    return f"[[script:say words={PIECES * 3} delay=0.002]]"


class Ours:
    def __init__(self, api: httpx2.AsyncClient, temporal: Client) -> None:
        self._api = api
        self._temporal = temporal

    async def submit(self, text: str, max_steps: int, **more: object) -> str:
        task = {"agent": AGENT, "input": text, "config": {"max_steps": max_steps}, **more}
        answer = await self._api.post("/tasks", json=task)
        answer.raise_for_status()
        task_id: str = answer.json()["task_id"]
        return task_id

    async def await_state(self, task_id: str, *, status: str | None = None, step: int = 0) -> None:
        """Wait until the task is shown with this status, or at this step."""
        for _ in range(int(PATIENCE / 0.02)):
            record = (await self._api.get(f"/tasks/{task_id}")).json()
            if (status is None or record["status"] == status) and (record["progress"]["step"] or 0) >= step:
                return
            await asyncio.sleep(0.02)
        raise RuntimeError(f"task {task_id} did not reach {status or step}")

    async def await_closing(self, task_id: str) -> None:
        """Wait as for the bare loop: on the workflow's result. The workflow starts after the response."""
        handle = self._temporal.get_workflow_handle(session_workflow_id(task_id))
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await handle.result()
                    return
                except RPCError as error:
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise
                    await asyncio.sleep(0.001)

    async def check(self, task_id: str, steps: int) -> None:
        """Check the number of steps: a session that ended early would look fast."""
        await self.await_closing(task_id)
        handle = self._temporal.get_workflow_handle(session_workflow_id(task_id), result_type=SessionResult)
        result = await handle.result()
        if result.status is not Status.COMPLETED or result.steps != steps + 1:
            raise RuntimeError(f"task {task_id} ended {result.status} ({result.reason}) after {result.steps} steps")

    async def count(self, steps: int, *, grow: int = 0) -> str:
        """Run one whole session, from the request to the closed workflow; its tool only reads, as a queued activity."""
        return await self._run(counting(steps, grow=grow), steps)

    async def write(self, steps: int) -> str:
        """The same with a tool that changes the workspace."""
        return await self._run(WRITES.format(steps), steps)

    async def report(self, steps: int) -> str:
        """The same with bookkeeping tools only, which are not queued activities."""
        return await self._run(REPORTS.format(steps), steps)

    async def define_looker(self) -> None:
        """An agent with the tool of the peers and no other."""
        (await self._api.put(f"/agents/{LOOKER}", json={"name": LOOKER, **LOOKS})).raise_for_status()

    async def look(self, steps: int) -> str:
        """The loop of `bench.peers`: each result is another kilobyte, of a user's own tool."""
        task_id = await self.submit(prompt(steps), steps + 2, agent=LOOKER)
        await self.await_closing(task_id)
        return task_id

    async def _run(self, text: str, steps: int) -> str:
        task_id = await self.submit(text, steps + 2)
        await self.await_closing(task_id)
        return task_id
