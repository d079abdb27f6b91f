"""Logs without secrets: the secret values of running tools and hooks are replaced in every line that is logged."""

import contextlib
import logging
from collections import Counter
from collections.abc import Iterator

from domain.redactor import Redactor

_active: Counter[Redactor] = Counter()  # redactors of the running tools and hooks of this process


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
    """Redacts the whole line, including its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for redactor in list(_active):
            text = redactor.text(text)
        return text
