"""CPU of a worker for each piece of a streamed reply, beside a worker that only reads the same stream with the SDK."""

from bench import cpu
from bench.bare import SPEAKING_CALL
from bench.lab import Lab
from bench.ours import PIECES, speaking
from bench.table import Row


async def measure(lab: Lab, rounds: int, sessions: int) -> list[Row]:
    if not cpu.measurable():
        return []
    ours: list[float] = []
    calling: list[float] = []
    for _ in range(rounds):
        before = cpu.seconds([lab.pids["worker"]])
        for _ in range(sessions):
            await lab.ours.closed(await lab.ours.submit(speaking(0), 2))
        ours.append((cpu.seconds([lab.pids["worker"]]) - before) / sessions / PIECES * 1_000_000)
        before = cpu.seconds([lab.pids["bare"]])
        for _ in range(sessions):
            await lab.bare(0, SPEAKING_CALL)
        calling.append((cpu.seconds([lab.pids["bare"]]) - before) / sessions / PIECES * 1_000_000)
    return [Row("CPU of a streamed piece (worker alone)", "µs", ours, calling=calling)]
