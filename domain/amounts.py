"""Amounts, and texts from models and tools, formatted for people."""

import re

# Control codes, and marks that reorder text: a text of a model or a tool must not control the terminal that shows it.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    return _UNSAFE.sub("", text)


def duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.1f}".removesuffix(".0") + " s"


def format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def dollars(cost: float | None) -> str:
    return "cost unknown" if cost is None else f"${cost:.4f}"
