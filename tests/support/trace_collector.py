"""A collector of traces: an HTTP server that takes what OTLP exporters send, and keeps the decoded spans."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse


@dataclass(frozen=True)
class Span:
    """A span as the collector got it; times are nanoseconds."""

    name: str
    trace: bytes
    own: bytes
    parent: bytes
    begin_ns: int
    end_ns: int
    attributes: dict[str, Any]

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9


@dataclass
class Collector:
    """What came: the spans, and all bytes of the requests."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)

    def below(self, span: Span) -> list[Span]:
        """Return the spans whose parent a span is."""
        return [each for each in self.spans if each.parent == span.own and each.trace == span.trace]

    def named(self, name: str) -> list[Span]:
        return [each for each in self.spans if each.name == name]

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.bodies.append(body)
        for resource in request.resource_spans:
            self.resources.append({each.key: _value(each.value) for each in resource.resource.attributes})
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                attributes = {each.key: _value(each.value) for each in span.attributes}
                times = span.start_time_unix_nano, span.end_time_unix_nano
                self.spans.append(Span(span.name, span.trace_id, span.span_id, span.parent_span_id, *times, attributes))


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """Serve a collector on this machine until the block is left."""
    collector, lock = Collector(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
                self.send_error(404)
                return
            with lock:
                collector.take(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            server.shutdown()
