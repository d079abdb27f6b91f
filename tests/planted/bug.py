"""One bug to plant: a small change of the code, and the tests that should notice it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    old: str  # occurs once in the file
    new: str
    tests: tuple[str, ...]  # as arguments for pytest
    hangs: bool = False  # its tests notice the bug by never ending; it is planted alone
