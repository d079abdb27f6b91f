"""Dropped signals cost little, however many there are."""

import io
import logging

from workflows.argument_guard import MOST_LINES, DroppedSignals


def test_thousands_of_dropped_signals_are_few_lines_without_tracebacks() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(DroppedSignals())
    log = logging.Logger("sdk")
    log.addHandler(handler)
    for number in range(3_000):
        try:
            int("x")
        except ValueError:
            log.exception(f"Failed deserializing signal input for post on workflow {number}")
            log.warning("dropped a signal %s whose arguments do not fit", "post")
    lines = stream.getvalue().splitlines()
    assert MOST_LINES <= len(lines) <= 10 * MOST_LINES and "Traceback" not in stream.getvalue()
    log.exception("something else")
    assert "something else" in stream.getvalue()
