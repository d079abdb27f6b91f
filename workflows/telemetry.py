"""Telemetry: one trace from the request to the tools, sent by OTLP if an endpoint is set.

The SDK's plugin carries the trace through workflows and activities without repeating spans on replay. FastAPI and the
model's client make their own spans, with the GenAI conventions, as soon as there is a tracer provider.
"""

from opentelemetry import trace
from temporalio.plugin import SimplePlugin

FLUSH_MS = 2_000
MISSING = "To send traces, install requirements-telemetry.txt instead of requirements.txt."


def plugins(endpoint: str | None) -> list[SimplePlugin]:
    """The plugins of a client, and of the workers made with it."""
    if endpoint is None:
        return []
    try:  # an optional part of the installation
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider

        from workflows.span_processor import SendOnce
    except ModuleNotFoundError as missing:
        raise RuntimeError(MISSING) from missing
    provider = create_tracer_provider(resource=Resource.create({"service.name": "errand"}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(SendOnce(exporter))
    trace.set_tracer_provider(provider)
    return [OpenTelemetryPlugin(add_temporal_spans=True)]


def flush() -> None:
    """Send the waiting spans, for a process that may end without notice."""
    provider = trace.get_tracer_provider()
    if hasattr(provider, "force_flush"):
        provider.force_flush(FLUSH_MS)
