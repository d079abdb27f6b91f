"""The names that agent files may use besides each other's: the tools, turn handlers and hooks of a worker."""

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Catalogue:
    tools: Collection[str]
    handlers: Collection[str] = field(default_factory=frozenset)
    hooks: Collection[str] = field(default_factory=frozenset)
