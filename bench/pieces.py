"""CPU of a worker for each piece of a streamed reply, in both forms, beside a worker that only reads the same stream of
the first with the SDK."""

from bench import cpu
from bench.bare import SPEAKING_CALL
from bench.lab import Lab
from bench.ours import PIECES, speaking
from bench.table import Row

FORMS = {
    "offline": "CPU of a streamed piece (worker alone)",
    "openai/offline": "CPU of a streamed piece in OpenAI's form (worker alone)",
}


async def measure(lab: Lab, rounds: int, sessions: int) -> list[Row]:
    if not cpu.measurable():
        return []
    ours: dict[str, list[float]] = {model: [] for model in FORMS}
    calling: list[float] = []
    for _ in range(rounds):
        for model, measured in ours.items():
            before = cpu.seconds([lab.pids["worker"]])
            for _ in range(sessions):
                await lab.ours.await_closing(
                    await lab.ours.submit(speaking(0), 2, config={"max_steps": 2, "model": model})
                )
            measured.append((cpu.seconds([lab.pids["worker"]]) - before) / sessions / PIECES * 1_000_000)
        before = cpu.seconds([lab.pids["bare"]])
        for _ in range(sessions):
            await lab.bare(0, SPEAKING_CALL)
        calling.append((cpu.seconds([lab.pids["bare"]]) - before) / sessions / PIECES * 1_000_000)
    return [Row(FORMS[model], "µs", measured, calling=calling) for model, measured in ours.items()]
