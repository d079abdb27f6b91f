"""Rows as models where many are read for work in the background."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

import asyncpg

log = logging.getLogger("errand.store")

Model = TypeVar("Model")


def readable(rows: Iterable[asyncpg.Record], read: Callable[[asyncpg.Record], Model], what: str) -> list[Model]:
    """Without those that another version wrote, or a person changed: they must not hold up the others."""
    found: list[Model] = []
    for row in rows:
        try:
            found.append(read(row))
        except ValueError:  # pydantic's and json's are both
            log.exception("%s %s cannot be read", what, row["id"])
    return found
