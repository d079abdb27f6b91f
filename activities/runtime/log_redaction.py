"""Logs without secrets: what the running tools and hooks were given is replaced in every line that is written."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator

from domain.redactor import Redactor

_active: Counter[Redactor] = Counter()  # of the tools and hooks that are running in this process


@contextlib.contextmanager
def hidden_in_logs(redactor: Redactor) -> Iterator[None]:
    _active[redactor] += 1
    try:
        yield
    finally:
        _active[redactor] -= 1
        if not _active[redactor]:
            del _active[redactor]


class RedactingFormatter(logging.Formatter):
    """Redacts the whole line, with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for redactor in list(_active):
            text = redactor.text(text)
        return text
