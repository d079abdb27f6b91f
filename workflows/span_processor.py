"""Each span is sent once: a workflow task that is taken again tells of spans that were sent, by the ids they had."""

from collections import OrderedDict
from threading import Lock

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

REMEMBERED = 20_000  # a task is taken again within seconds, if at all


class SendOnce(BatchSpanProcessor):
    """The SDK's plugin keeps quiet about what is in the history; a workflow task that failed or timed out is not yet,
    and its next attempt makes the same spans with the same ids. Of another process's nothing is known here."""

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
