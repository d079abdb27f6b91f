"""`python -m bench`: measures, then prints one table of ratios, or with --json one object."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import click

from bench import handle, history, long, memory, pieces, recovery, steps, throughput
from bench.lab import Lab, open_lab
from bench.table import Row, render
from deploy.state import StackError


@dataclass(frozen=True)
class Sizes:
    """How much is measured in each round."""

    steps: int = 50
    sessions: int = 40
    at_once: int = 20
    histories: tuple[int, ...] = (10, 50, 200)
    submissions: int = 20
    streamed: int = 3
    waiting: int = 80
    long: tuple[int, ...] = (500, 1_000, 1_500, 2_000)


QUICK = Sizes(
    steps=5,
    sessions=4,
    at_once=2,
    histories=(2, 6),
    submissions=3,
    streamed=1,
    waiting=3,
    long=(3, 6),
)


Measurement = Callable[[Lab, int, Sizes], Awaitable[list[Row]]]

# Memory comes first, because it would otherwise reuse memory that other measurements released; recovery comes last,
# because afterwards the worker is another process.
MEASUREMENTS: dict[str, Measurement] = {
    "memory": lambda lab, rounds, sizes: memory.measure(lab, sizes.waiting),
    "steps": lambda lab, rounds, sizes: steps.measure(lab, rounds, sizes.steps),
    "sessions": lambda lab, rounds, sizes: throughput.measure(lab, rounds, sizes.sessions, sizes.at_once),
    "history": lambda lab, rounds, sizes: history.measure(lab, sizes.histories),
    "handle": lambda lab, rounds, sizes: handle.measure(lab, rounds, sizes.submissions),
    "pieces": lambda lab, rounds, sizes: pieces.measure(lab, rounds, sizes.streamed),
    "long": lambda lab, rounds, sizes: long.measure(lab, sizes.long),
    "recovery": lambda lab, rounds, sizes: recovery.measure(lab, rounds),
}


async def measure(
    lab: Lab, rounds: int, sizes: Sizes, say: Callable[[str], None], names: Collection[str] = ()
) -> list[Row]:
    """Take the measurements with these names, or all."""
    rows: list[Row] = []
    for name, measurement in MEASUREMENTS.items():
        if not names or name in names:
            say(name)
            rows += await measurement(lab, rounds, sizes)
    return rows


def as_table(rows: list[Row], rounds: int) -> str:
    return f"rounds: {rounds}; a ratio is taken within its round, then the median [range]\n\n{render(rows)}"


def as_json(rows: list[Row], rounds: int) -> str:
    return json.dumps({"rounds": rounds, "cores": os.cpu_count(), "rows": [row.record() for row in rows]})


async def run(rounds: int, sizes: Sizes, say: Callable[[str], None], names: Collection[str] = ()) -> list[Row]:
    say("starting a separate stack")
    async with open_lab() as lab:
        return await measure(lab, rounds, sizes, say, names)


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), help="Interleaved rounds.  [default: 5, with --quick 1]")
@click.option("--quick", is_flag=True, help="Small sizes: checks that the bench works; the figures mean nothing.")
@click.option("--only", "names", multiple=True, type=click.Choice(list(MEASUREMENTS)), help="Repeat it for several.")
@click.option("--json", "json_wanted", is_flag=True, help="One JSON object instead of the table.")
def main(rounds: int | None, quick: bool, names: tuple[str, ...], json_wanted: bool) -> None:
    """Errand against a bare Temporal loop, in the same run on the same servers."""
    rounds = rounds or (1 if quick else 5)
    try:
        sizes = QUICK if quick else Sizes()
        rows = asyncio.run(run(rounds, sizes, lambda text: click.echo(text, err=True), names))
    except StackError as error:
        raise click.ClickException(str(error)) from None
    click.echo(as_json(rows, rounds) if json_wanted else as_table(rows, rounds))


if __name__ == "__main__":
    main()
