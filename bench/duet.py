"""The time per turn of a session with two sides, compared with a step of a session with one.

Both make a model call; a step adds a tool's result, a turn adds the message of the other side.
"""

import time

from bench.lab import Lab
from bench.table import Row


async def measure(lab: Lab, rounds: int, turns: int) -> list[Row]:
    await lab.ours.define_duet(turns)
    duet: list[float] = []
    alone: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        await lab.ours.play_duet(turns)
        duet.append((time.perf_counter() - began) / (turns + 1) * 1_000)  # with the summary that ends it
        began = time.perf_counter()
        await lab.ours.count(turns)
        alone.append((time.perf_counter() - began) / (turns + 1) * 1_000)
    return [Row(f"turn of two sides, N={turns} (to a step of one)", "ms", duet, alone)]
