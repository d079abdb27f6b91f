"""Rows as models, for background work that reads many."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

import asyncpg

log = logging.getLogger("errand.store")

Model = TypeVar("Model")


def readable(rows: Iterable[asyncpg.Record], read: Callable[[asyncpg.Record], Model], what: str) -> list[Model]:
    """The readable rows. Rows that another version wrote or a person changed must not block the others."""
    found: list[Model] = []
    for row in rows:
        try:
            found.append(read(row))
        except ValueError:  # the errors of pydantic and json are both ValueErrors
            log.exception("%s %s cannot be read", what, row["id"])
    return found
