"""If the database is unreachable, an activity waits and tries again."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from domain import wire
from store.database import TRANSIENT_ERRORS


@contextmanager
def retried_if_away() -> Iterator[None]:
    try:
        yield
    except TRANSIENT_ERRORS as error:
        pause = timedelta(seconds=1)
        raise ApplicationError(
            "The database is unavailable.", type=wire.DATABASE_AWAY, next_retry_delay=pause
        ) from error
