"""What agent files may name besides each other: the tools, turn handlers and hooks that a worker has."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Catalogue:
    tools: Collection[str]
    handlers: Collection[str] = field(default_factory=frozenset)
    hooks: Collection[str] = field(default_factory=frozenset)
