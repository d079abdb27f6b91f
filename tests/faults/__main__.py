"""`python -m tests.faults`: runs the fault bench and prints a table; a failed row can be repeated with its seed."""

import asyncio
import random
import sys
import tempfile
import time
from dataclasses import fields
from pathlib import Path

import click

from deploy.child import tail
from tests.faults import disk, network
from tests.faults.checker import Violations
from tests.faults.matrix import LONG, ROWS, SHORT, Plan, Row, Size, prepare, run
from tests.support.launch import embedded
from tests.support.stack import Stack

DISK = "disk full"
NETWORK = [*(f"network to {name}" for name in network.SERVERS), "network to all"]
COUNTS = [field.name for field in fields(Violations) if field.type == "int" or field.type is int]


@click.command(help=__doc__)
@click.option(
    "--seed", type=int, default=None, help="Decides what happens when; printed, so that a run can be repeated."
)
@click.option(
    "--row",
    "names",
    multiple=True,
    type=click.Choice([*ROWS, *NETWORK, DISK]),
    help="Only this row; may be repeated.",
)
@click.option("--short", is_flag=True, help="As small as in the tests.")
def main(seed: int | None, names: tuple[str, ...], short: bool) -> None:
    seed = random.randrange(10**6) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    rows = asyncio.run(_measure(seed, names or (*ROWS, *NETWORK, DISK), short))
    click.echo(table(rows))
    sys.exit(1 if any(row.violations.total for row in rows) else 0)


async def _measure(seed: int, names: tuple[str, ...], short: bool) -> list[Row]:
    rows: list[Row] = []
    size = SHORT if short else LONG
    with tempfile.TemporaryDirectory() as folder:
        if plain := [name for name in names if name in ROWS]:
            async with embedded() as stack:
                await prepare(stack)
                for name in plain:
                    rows.append(await _row(stack, name, seed, size, Path(folder), ROWS[name]))
        if through := [name for name in names if name in NETWORK]:
            async with network.proxied() as (stack, proxies):
                await prepare(stack)
                faults = network.faults(proxies)
                for name in through:
                    rows.append(await _row(stack, name, seed, size, Path(folder), Plan([faults[name]])))
        if DISK in names:
            async with disk.on_small_disk() as stack:
                await prepare(stack)
                rows.append(await _row(stack, DISK, seed, size, Path(folder), Plan([disk.fill_for_a_while])))
    return rows


async def _row(stack: Stack, name: str, seed: int, size: Size, folder: Path, plan: Plan) -> Row:
    began = time.monotonic()
    try:
        row = await run(stack, name, seed, size, folder, plan)
    except BaseException:
        for part in ("api", "worker"):  # the logs are removed with the stack
            click.echo(tail(stack.root / "logs" / f"{part}.log", 40), err=True)
        raise
    for line in row.violations.named:
        click.echo(f"{name}, seed {seed}: {line}", err=True)
    took = time.monotonic() - began
    click.echo(
        f"{name}: {row.tasks} tasks, {row.hits} faults, {row.violations.total} violations, {took:.0f} s", err=True
    )
    return row


def table(rows: list[Row]) -> str:
    heads = ["fault", "tasks", "faults", "requests", "reconnects", *COUNTS, "slowest recovery"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        counts = [str(getattr(row.violations, name)) for name in COUNTS]
        recovery = f"{row.recovery:.1f} s" if row.recovery is not None else ""
        cells = [row.name, row.tasks, row.hits, row.requests, row.connections, *counts, recovery]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
