"""The contest as one table of ratios to the bare loop."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import chain
from math import nan
from statistics import median

from bench.peers.contest import Figures, Result
from bench.table import Spread

HEADER = ("contestant", "ms a step", "CPU a step", "history a step", "stored in all")
NAMES = tuple(field.name for field in fields(Figures))


def ratios(result: Result, bare: Result) -> dict[str, Spread | None]:
    """The ratio within each round; None if the contestant has no such figure, such as an engine without a history."""
    theirs = _values(bare)
    return {
        name: Spread.of([one / other for one, other in zip(mine, theirs[name], strict=True)]) if mine else None
        for name, mine in _values(result).items()
    }


def _values(result: Result) -> dict[str, list[float]]:
    """A value per round for each figure, or none at all."""
    every = {name: [getattr(figures, name) for figures in result.rounds] for name in NAMES}
    return {name: values if None not in values else [] for name, values in every.items()}


def as_table(results: Sequence[Result], rounds: int) -> str:
    notes = list(dict.fromkeys(result.contestant.note for result in results if result.contestant.note))
    groups = [[result for result in results if result.steps == steps] for steps in _lengths(results)]
    tables = [[_cells(result, group[0], notes) for result in group] for group in groups]
    widths = _widths([HEADER, *chain.from_iterable(tables)])

    def line(cells: Sequence[str]) -> str:
        return "  ".join(map(str.ljust, cells, widths)).rstrip()

    return "\n\n".join(
        [
            f"rounds: {rounds}; each figure is the ratio to the bare loop in the same round, median [range]\n"
            "the bare loop passes short texts; all others call the same offline model over HTTP",
            f"{line(HEADER)}\n{'-' * (sum(widths) + 2 * len(widths) - 2)}",
            *("\n".join([_scale(group[0]), *map(line, rows)]) for group, rows in zip(groups, tables, strict=True)),
            "\n".join(f"[{number}] {note}" for number, note in enumerate(notes, 1)),
        ]
    )


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    """A failed row has only a name and a reason, which has no width limit."""
    names, whole = [len(line[0]) for line in lines], [line for line in lines if len(line) == len(HEADER)]
    return [max(names), *(max(len(line[column]) for line in whole) for column in range(1, len(HEADER)))]


def _lengths(results: Sequence[Result]) -> list[int]:
    return list(dict.fromkeys(result.steps for result in results))


def _scale(bare: Result) -> str:
    ms, cpu, history, stored = (median(values) if values else nan for values in _values(bare).values())
    return (
        f"N={bare.steps}: the bare loop took {ms:.3g} ms and {cpu:.3g} ms of CPU a step, "
        f"{history:.0f} bytes of history a step, {stored / 1_000:.3g} kB in all"
    )


def _cells(result: Result, bare: Result, notes: list[str]) -> tuple[str, ...]:
    name = result.contestant.name
    if note := result.contestant.note:
        name += f" [{notes.index(note) + 1}]"
    if result.failed:
        return name, f"FAILED: {result.failed}"
    return name, *(str(spread) if spread else "none" for spread in ratios(result, bare).values())
