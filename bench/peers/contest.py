"""The contest: all contestants are up, and in each round one after the other takes the same number of steps."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import cpu
from bench.bare import LOOKING_CALL
from bench.history import size
from bench.lab import Lab
from bench.peers.peer import Peer, PeerFailed, stage
from bench.scratch import count_stored_bytes, scratch_database
from domain.ids import session_workflow_id

STREAMED = (
    "Model calls are streamed: watchers of Errand see text while it is written. The peers get whole answers, or stream "
    "too with --streamed, if their users write the call."
)


@dataclass(frozen=True)
class Contestant:
    name: str
    run: Callable[[int], Awaitable[Sequence[str]]]  # one whole loop; returns its workflows in Temporal
    pid: int = 0  # of the process that runs the loop
    database: str | None = None  # its database, besides Temporal
    note: str = ""
    check: Callable[[Sequence[str], int], Awaitable[None]] | None = (
        None  # called afterwards, outside of the measurement
    )
    missing: str = ""  # why it cannot take part


@dataclass(frozen=True)
class Figures:
    """One run."""

    ms: float  # a step
    cpu: float | None  # ms a step, of its process, Temporal and PostgreSQL; None where there is no /proc
    history: float | None  # bytes a step in Temporal; None: it has no workflow there
    stored: float  # bytes in all, in Temporal and PostgreSQL


@dataclass
class Result:
    """One contestant at one length: a value per round, or the reason why there is none."""

    contestant: Contestant
    steps: int
    rounds: list[Figures] = field(default_factory=list)
    failed: str = ""


def home_team(lab: Lab) -> list[Contestant]:
    """The bare loop, with which all are compared; the bare loop with our model call; and Errand."""

    async def bare(steps: int) -> list[str]:
        return [await lab.bare(steps)]

    async def calling(steps: int) -> list[str]:
        return [await lab.bare(steps, LOOKING_CALL)]

    async def ours(steps: int) -> list[str]:
        task_id = await lab.ours.look(steps)
        return [session_workflow_id(task_id)]

    async def check(workflows: Sequence[str], steps: int) -> None:
        await lab.ours.check(workflows[0].rpartition("/")[2], steps)

    database = lab.database_url.rpartition("/")[2]
    return [
        Contestant("bare loop", bare, lab.pids["bare"]),
        Contestant("bare loop with our model call", calling, lab.pids["bare"], note=STREAMED),
        Contestant("Errand", ours, lab.pids["worker"], database, STREAMED, check),
    ]


@asynccontextmanager
async def visitors(
    lab: Lab, python: Path, peers: Sequence[Peer], folder: Path, *, streamed: bool = False
) -> AsyncIterator[list[Contestant]]:
    """Start each peer in a separate process with its own database; if one does not start, the report has the reason."""
    address = lab.temporal.service_client.config.target_host
    async with AsyncExitStack() as opened:
        yield [await _visitor(lab, python, peer, folder, address, opened, streamed) for peer in peers]


async def _visitor(
    lab: Lab, python: Path, peer: Peer, folder: Path, address: str, opened: AsyncExitStack, streamed: bool
) -> Contestant:
    name = await opened.enter_async_context(scratch_database(lab.pool))
    url = f"{lab.database_url.rpartition('/')[0]}/{name}"

    async def unable(steps: int) -> list[str]:
        raise AssertionError("never asked")

    try:
        log = folder / f"{peer.name}.log"
        up = await opened.enter_async_context(
            stage(python, peer.module, address, url, lab.model_url, log, streamed=streamed)
        )
    except PeerFailed as error:
        return Contestant(peer.title, unable, note=peer.note, missing=str(error))

    async def run(steps: int) -> list[str]:
        done = await up.run(steps)
        return [done.workflow_id] if done.workflow_id else []

    return Contestant(peer.title, run, up.pid, name, peer.note)


async def compete(
    lab: Lab, contestants: Sequence[Contestant], lengths: Sequence[int], rounds: int, say: Callable[[str], None]
) -> list[Result]:
    results = [Result(contestant, steps, failed=contestant.missing) for steps in lengths for contestant in contestants]
    say("warming up")
    for result in results[: len(contestants)]:
        await _add(lab, result, 3)  # warm up: run all code once before anything is measured
        result.rounds.clear()
    for steps in lengths:
        for number in range(rounds):
            say(f"N={steps}, round {number + 1} of {rounds}")
            for result in results:
                if result.steps == steps:
                    await _add(lab, result, steps)
    return results


async def _add(lab: Lab, result: Result, steps: int) -> None:
    if result.failed:
        return
    try:
        result.rounds.append(await _figures(lab, result.contestant, steps))
    except PeerFailed as error:
        result.failed = str(error)


async def _figures(lab: Lab, contestant: Contestant, steps: int) -> Figures:
    processes = (contestant.pid, lab.pids["temporal"], lab.pids["postgres"])
    before = await _kept(lab, contestant)
    busy, began = cpu.seconds(processes), time.perf_counter()
    workflows = await contestant.run(steps)
    taken, spent = time.perf_counter() - began, cpu.seconds(processes) - busy
    grown = await _kept(lab, contestant) - before
    history = sum([await size(lab.temporal, workflow_id) for workflow_id in workflows])
    if contestant.check:
        await contestant.check(workflows, steps)
    return Figures(
        ms=taken / steps * 1_000,
        cpu=spent / steps * 1_000 if cpu.measurable() else None,
        history=history / steps if workflows else None,
        stored=history + grown,
    )


async def _kept(lab: Lab, contestant: Contestant) -> int:
    return await count_stored_bytes(lab.pool, contestant.database) if contestant.database else 0
