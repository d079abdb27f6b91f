"""`python -m bench`: measures, then prints one table of ratios, or with --json one object."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

import click

from bench import (
    crowd,
    duet,
    fanout,
    fire,
    handle,
    history,
    long,
    memory,
    message_history,
    pieces,
    reattach,
    recovery,
    steps,
    stream,
    throughput,
)
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
    readers: int = 4
    replies: int = 20
    streamed: int = 3
    children: int = 100
    pending: tuple[int, ...] = (1, 100, 1_000)
    messages: int = 20
    waiting: int = 80
    crowd: int = 500
    long: tuple[int, ...] = (500, 1_000, 1_500, 2_000)


QUICK = Sizes(
    steps=5,
    sessions=4,
    at_once=2,
    histories=(2, 6),
    submissions=3,
    readers=1,
    replies=3,
    streamed=1,
    children=5,
    pending=(1, 5),
    messages=3,
    waiting=3,
    crowd=4,
    long=(3, 6),
)


Measurement = Callable[[Lab, int, Sizes], Awaitable[list[Row]]]

# Memory comes first, because it would otherwise reuse memory that other measurements released; recovery comes last,
# because afterwards the worker is another process.
MEASUREMENTS: dict[str, Measurement] = {
    "memory": lambda lab, rounds, sizes: memory.measure(lab, sizes.waiting),
    "steps": lambda lab, rounds, sizes: steps.measure(lab, rounds, sizes.steps),
    "sides": lambda lab, rounds, sizes: duet.measure(lab, rounds, sizes.steps),
    "sessions": lambda lab, rounds, sizes: throughput.measure(lab, rounds, sizes.sessions, sizes.at_once),
    "history": lambda lab, rounds, sizes: history.measure(lab, sizes.histories),
    "handle": lambda lab, rounds, sizes: handle.measure(lab, rounds, sizes.submissions),
    "stream": lambda lab, rounds, sizes: stream.measure(lab, rounds, sizes.readers, sizes.replies),
    "pieces": lambda lab, rounds, sizes: pieces.measure(lab, rounds, sizes.streamed),
    "fan-out": lambda lab, rounds, sizes: fanout.measure(lab, rounds, sizes.children),
    "fire": lambda lab, rounds, sizes: fire.measure(lab, rounds, sizes.pending),
    "messages": lambda lab, rounds, sizes: message_history.measure(lab, sizes.messages),
    "crowd": lambda lab, rounds, sizes: crowd.measure(lab, sizes.crowd),
    "long": lambda lab, rounds, sizes: long.measure(lab, sizes.long),
    "reattach": lambda lab, rounds, sizes: reattach.measure(lab, rounds, sizes.steps),
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
