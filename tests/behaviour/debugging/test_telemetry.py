"""OpenTelemetry: one trace from the request to the model and the tools; a replay makes only spans with known ids."""

import copy
import http.server
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as global_trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import WorkflowHistory
from temporalio.contrib.opentelemetry import OpenTelemetryPlugin, create_tracer_provider
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.support.own_worker import platform
from tests.support.stack import Stack, steps
from workflows.registry import WORKFLOWS
from workflows.replay import checking_runner


class Receiver(http.server.ThreadingHTTPServer):
    """The spans that a collector would receive."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Take)
        self.spans: list[Span] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Take(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def attributes(span: Span) -> dict[str, Any]:
    values = {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes}
    return values


async def test_trace_reaches_from_the_request_to_the_tools(stack: Stack, receiver: Receiver, tmp_path: Path) -> None:
    exporting = copy.copy(stack)
    exporting.settings = replace(stack.settings, otel_exporter_otlp_endpoint=receiver.url)
    async with platform(exporting, tmp_path, {}) as own:
        record = await own.run(steps([("bash", {"command": "true"})], [("list_files", {"path": "."})]))
        await own.session(record["task_id"]).result()  # the row has its final status a moment before the workflow ends
        history = await own.session(record["task_id"]).fetch_history()
    # the processes have ended and have sent all their spans
    session = next(span for span in receiver.spans if span.name == "RunWorkflow:Session")
    spans = [span for span in receiver.spans if span.trace_id == session.trace_id]
    assert not [name for name, times in Counter((span.name, span.span_id) for span in spans).items() if times > 1]
    names = Counter(span.name for span in spans)
    assert any(name.startswith("POST") for name in names), names
    expected = {"StartWorkflow:Session": 1, "RunWorkflow:Session": 1}
    expected |= {"RunActivity:call_model": 3, "RunActivity:tool.bash": 1, "RunActivity:tool.list_files": 1}
    expected |= {"RunActivity:finish_session": 1}
    assert {name: names[name] for name in expected} == expected
    known = {span.span_id for span in spans}
    roots = [span.name for span in spans if span.parent_span_id not in known]
    assert len(roots) == 1 and roots[0].startswith("POST"), roots

    chats = [attributes(span) for span in spans if attributes(span).get("gen_ai.operation.name") == "chat"]
    assert len(chats) == 3
    for chat in chats:
        assert chat["gen_ai.provider.name"] == "anthropic" and chat["gen_ai.usage.output_tokens"] > 0
    [tool] = [attributes(span) for span in spans if span.name == "RunActivity:tool.bash"]
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "bash")
    everything = b"".join(span.SerializeToString() for span in spans)
    assert b"sk-canary" not in everything and b"You are tested" not in everything

    assert await replayed(history) <= known


async def replayed(history: WorkflowHistory) -> set[bytes]:
    """Return the spans that a replay of the same history makes, as after a restart."""
    exporter = InMemorySpanExporter()
    provider = create_tracer_provider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    global_trace.set_tracer_provider(provider)
    replayer = Replayer(
        workflows=list(WORKFLOWS),
        workflow_runner=checking_runner(),
        data_converter=pydantic_data_converter,
        plugins=[OpenTelemetryPlugin(add_temporal_spans=True)],
    )
    await replayer.replay_workflow(history)
    provider.shutdown()
    contexts = [span.get_span_context() for span in exporter.get_finished_spans()]
    return {context.span_id.to_bytes(8, "big") for context in contexts if context}
