"""The table: each figure as a ratio to the bare loop of the same round, with the median and the range."""

from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.median:.2f}"
        return f"{self.median:.2f} [{self.low:.2f}-{self.high:.2f}]"


@dataclass(frozen=True)
class Aim:
    """The aim for a figure: for the ratio to the bare loop, or for our own value."""

    low: float | None = None
    high: float | None = None
    of_value: bool = False

    def met(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return f">= {self.low:.2g}" if self.low is not None else f"<= {self.high:g}"


@dataclass(frozen=True)
class Row:
    """One figure: ours, the bare loop's, and that of the bare loop that makes our model call; a value per round."""

    name: str
    unit: str
    ours: list[float]
    bare: list[float] | None = None
    calling: list[float] | None = None
    aim: Aim | None = None

    @property
    def to_bare(self) -> Spread | None:
        return _ratio(self.ours, self.bare)

    @property
    def to_calling(self) -> Spread | None:
        return _ratio(self.ours, self.calling)

    @property
    def met(self) -> bool | None:
        if self.aim is None:
            return None
        judged = Spread.of(self.ours) if self.aim.of_value else self.to_bare
        return judged is not None and self.aim.met(judged.median)

    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": vars(Spread.of(self.ours)),
            "bare": vars(Spread.of(self.bare)) if self.bare else None,
            "bare_with_model_call": vars(Spread.of(self.calling)) if self.calling else None,
            "ratio_to_bare": vars(self.to_bare) if self.to_bare else None,
            "ratio_to_bare_with_model_call": vars(self.to_calling) if self.to_calling else None,
            "aim": str(self.aim) if self.aim else None,
            "aim_of": ("value" if self.aim.of_value else "ratio_to_bare") if self.aim else None,
            "met": self.met,
        }


def _ratio(ours: list[float], other: list[float] | None) -> Spread | None:
    return Spread.of([mine / theirs for mine, theirs in zip(ours, other, strict=True)]) if other else None


HEADER = ("figure", "ours", "bare", "ratio to bare", "with model call", "ratio to that", "aim", "met")


def render(rows: list[Row]) -> str:
    lines = [HEADER, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADER))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([shown[0], "-" * max(map(len, shown)), *shown[1:]])


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.name}, {row.unit}",
        _number(row.ours),
        _number(row.bare),
        str(row.to_bare or ""),
        _number(row.calling),
        str(row.to_calling or ""),
        f"{row.aim}{' of ours' if row.aim.of_value else ''}" if row.aim else "",
        {True: "yes", False: "NO", None: ""}[row.met],
    )


def _number(values: list[float] | None) -> str:
    if not values:
        return ""
    middle = median(values)
    return f"{middle:.3g}" if middle < 1_000 else f"{middle:.0f}"
