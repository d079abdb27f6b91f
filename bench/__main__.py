"""`python -m bench`: measures, then prints one table of ratios, or with --json one object."""

import asyncio
import json
import os
from collections.abc import Callable
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
    children: int = 100
    pending: tuple[int, ...] = (1, 100, 1_000)
    messages: int = 20
    waiting: int = 80
    crowd: int = 500
    long: tuple[int, ...] = (100, 500, 1_000, 2_000)


QUICK = Sizes(
    steps=5,
    sessions=4,
    at_once=2,
    histories=(2, 6),
    submissions=3,
    readers=1,
    replies=3,
    children=5,
    pending=(1, 5),
    messages=3,
    waiting=3,
    crowd=4,
    long=(3, 6),
)


async def measure(lab: Lab, rounds: int, sizes: Sizes, say: Callable[[str], None]) -> list[Row]:
    say("memory")  # first, because it would otherwise reuse memory that other measurements released
    held = await memory.measure(lab, sizes.waiting)
    say("steps")
    rows = await steps.measure(lab, rounds, sizes.steps)
    say("turns of two sides")
    turns = await duet.measure(lab, rounds, sizes.steps)
    say("sessions per second")
    rows += await throughput.measure(lab, rounds, sizes.sessions, sizes.at_once)
    say("history")
    rows += await history.measure(lab, sizes.histories)
    say("time to the handle")
    rows += await handle.measure(lab, rounds, sizes.submissions)
    say("streaming")
    rows += await stream.measure(lab, rounds, sizes.readers, sizes.replies)
    say("fan-out")
    rows += await fanout.measure(lab, rounds, sizes.children)
    say("fire")
    rows += await fire.measure(lab, rounds, sizes.pending)
    say("history of a conversation")
    rows += await message_history.measure(lab, sizes.messages)
    say("many waiting sessions at once")
    rows += await crowd.measure(lab, sizes.crowd)
    say("a long session")
    rows += await long.measure(lab, sizes.long)
    say("reattaching")
    rows += await reattach.measure(lab, rounds, sizes.steps)
    say("recovery")
    return rows + await recovery.measure(lab, rounds) + held + turns


def as_table(rows: list[Row], rounds: int) -> str:
    return f"rounds: {rounds}; a ratio is taken within its round, then the median [range]\n\n{render(rows)}"


def as_json(rows: list[Row], rounds: int) -> str:
    return json.dumps({"rounds": rounds, "cores": os.cpu_count(), "rows": [row.record() for row in rows]})


async def run(rounds: int, sizes: Sizes, say: Callable[[str], None]) -> list[Row]:
    say("starting a separate stack")
    async with open_lab() as lab:
        return await measure(lab, rounds, sizes, say)


@click.command()
@click.option("--rounds", type=click.IntRange(min=1), help="Interleaved rounds.  [default: 5, with --quick 1]")
@click.option("--quick", is_flag=True, help="Small sizes: checks that the bench works; the figures mean nothing.")
@click.option("--json", "json_wanted", is_flag=True, help="One JSON object instead of the table.")
def main(rounds: int | None, quick: bool, json_wanted: bool) -> None:
    """Errand against a bare Temporal loop, in the same run on the same servers."""
    rounds = rounds or (1 if quick else 5)
    try:
        rows = asyncio.run(run(rounds, QUICK if quick else Sizes(), lambda text: click.echo(text, err=True)))
    except StackError as error:
        raise click.ClickException(str(error)) from None
    click.echo(as_json(rows, rounds) if json_wanted else as_table(rows, rounds))


if __name__ == "__main__":
    main()
