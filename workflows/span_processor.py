"""Exports each span once, although a repeated workflow task makes the same spans again, with the same ids."""

from collections import OrderedDict
from threading import Lock

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

REMEMBERED = 20_000  # enough, because a task is repeated within seconds, if at all


class SendOnce(BatchSpanProcessor):
    """The SDK's plugin makes no spans for events in the history. A workflow task that failed or timed out is not in the
    history, and its next attempt makes the same spans with the same ids. Spans of other processes are not known
    here."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        self._sent: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._lock = Lock()  # workflows run in threads

    def on_end(self, span: ReadableSpan) -> None:
        if (context := span.get_span_context()) is None:
            return
        name = context.trace_id, context.span_id
        with self._lock:
            if name in self._sent:
                return
            self._sent[name] = None
            if len(self._sent) > REMEMBERED:
                self._sent.popitem(last=False)
        super().on_end(span)
