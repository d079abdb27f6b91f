"""One bug to plant: a small change of the code, and the tests that should notice it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    old: str  # occurs once in the file
    new: str
    tests: tuple[str, ...]  # as pytest takes them
    hangs: bool = False  # its tests may never end, which is how they notice; it is planted alone
