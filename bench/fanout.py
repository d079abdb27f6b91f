"""Fan-out and fan-in: one session delegates N parts and gathers them; ideally that takes as long as one part."""

import asyncio
import json
import time

import click

from bench.bare import MODEL_CALL
from bench.lab import Lab, open_lab
from bench.table import Row, render

REPLY_LENGTH, DELAY = 12, 0.5  # a subagent waits some seconds for its model, which costs the machine nothing
PER_DELTA = 3  # of the offline model's text in one delta
PATIENCE = 300  # seconds for one gather


def fan_out(children: int) -> str:
    """A task of two steps: all parts in one reply, then one gather."""
    part = f"[[script:say words={REPLY_LENGTH} delay={DELAY}]]"
    given = {"agent": "researcher", "prompt": part, "description": "one part"}
    launches = [{"name": "async_task", "input": given} for _ in range(children)]
    ids = [f"${number}" for number in range(children)]
    gather = {"name": "gather", "input": {"task_ids": ids, "timeout_s": PATIENCE}}
    return f'[[script:chain json={json.dumps([launches, [gather]])} last="Joined."]]'


async def measure(lab: Lab, rounds: int, children: int) -> list[Row]:
    ours: list[float] = []
    ideal: list[float] = []
    for _ in range(rounds):
        ideal.append(await _seconds(lab, 1))
        ours.append(await _seconds(lab, children))
    return [Row(f"fan-out and gather, {children} subagents (bare: 1)", "s", ours, ideal)]


async def against_bare(lab: Lab, rounds: int, children: int) -> list[Row]:
    """The same against as many bare workflows at once, each with one model call. Theirs answers at once, so the pauses
    of a part's reply are added."""
    pauses = REPLY_LENGTH / PER_DELTA * DELAY
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        ours.append(await _seconds(lab, children))
        began = time.perf_counter()
        await asyncio.gather(*(lab.bare(0, MODEL_CALL) for _ in range(children)))
        bare.append(time.perf_counter() - began + pauses)
    return [Row(f"fan-out and gather, {children} subagents (bare: {children})", "s", ours, bare)]


async def _seconds(lab: Lab, children: int) -> float:
    began = time.perf_counter()
    task_id = await lab.ours.submit(fan_out(children), 5)
    await lab.ours.closed(task_id)
    taken = time.perf_counter() - began
    await lab.ours.check(task_id, 2)
    answer = await lab.api.get(f"/conversations/{task_id}")
    ended = [child["status"] for child in answer.json()["sessions"][0]["children"]]
    if ended != ["completed"] * children:
        raise RuntimeError(f"of {children} subagents of {task_id} ended: {ended}")
    return taken


@click.command()
@click.option("--children", default=100, show_default=True)
@click.option("--rounds", default=3, show_default=True)
def main(children: int, rounds: int) -> None:
    """Subagents against as many bare workflows."""

    async def run() -> list[Row]:
        async with open_lab() as lab:
            return await against_bare(lab, rounds, children)

    click.echo(render(asyncio.run(run())))


if __name__ == "__main__":
    main()
