"""Keeps signals and updates with invalid arguments away from their handlers.

The SDK drops a signal and rejects an update whose payload does not decode. Three kinds of arguments pass its decoding
(temporalio 1.35) and would raise inside the handler. That fails the workflow task again and again until somebody resets
the workflow:

- a wrong number of arguments: the SDK then ignores the handler's types and passes on whatever was sent;
- `binary/null`, which decodes to None, and `binary/plain`, which decodes to bytes, whatever type the handler has.

Anyone who may signal a workflow can send these, for instance with an empty form in the Web UI.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from domain import wire

DROPPED = ("Failed deserializing signal input", "dropped a signal")  # how the SDK's line begins, and how ours does
MOST_LINES = 10  # of dropped signals, in a second


class DroppedSignals(logging.Filter):
    """Bounds what dropped signals cost: few lines, without tracebacks.

    The server passes on up to thousands of signals in one workflow task. The SDK logs the traceback of each that does
    not decode; these alone would take longer than a workflow task may, so that it fails again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._second, self._lines = 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(DROPPED):
            return True
        second = int(time.monotonic())
        self._lines = self._lines + 1 if second == self._second else 1
        self._second, record.exc_info = second, None
        return self._lines <= MOST_LINES


class ArgumentGuard(Interceptor):
    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _GuardedHandlers


class _GuardedHandlers(WorkflowInboundInterceptor):
    async def handle_signal(self, input: HandleSignalInput) -> None:
        if not _fit(_definition().signals.get(input.signal), input.args):
            workflow.logger.warning("dropped a signal %s whose arguments do not fit", input.signal)
            return
        await super().handle_signal(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        if not _fit(_definition().updates.get(input.update), input.args):
            message = f"The arguments of the update {input.update} do not fit."
            raise ApplicationError(message, type=wire.MALFORMED, non_retryable=True)
        return await super().handle_update_handler(input)


def _definition() -> workflow._Definition:
    """The SDK's definitions of the running workflow's handlers, for which it has no public name."""
    return workflow._Definition.must_from_class(type(workflow.instance()))


def _fit(handler: workflow._SignalDefinition | workflow._UpdateDefinition | None, arguments: Sequence[Any]) -> bool:
    if handler is None:  # the SDK handles names for which we have no handler
        return True
    expected = handler.arg_types or []
    return len(arguments) == len(expected) and all(map(isinstance, arguments, expected))
