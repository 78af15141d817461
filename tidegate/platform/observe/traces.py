"""
Traces of batches, for a collector of OpenTelemetry: a span for each batch of ingest and of a query, below it one for each input partition
or bucket with the seconds of its steps.

Law: nothing that makes or sends traces is imported unless ``traces.endpoint`` is set. A job never waits for the collector and never fails
because of it: spans beyond :data:`SPANS_MAX` that it did not take are dropped. A span has names, offsets, counts and seconds, never a key
or payload; its texts have passed :func:`~tidegate.basics.secret_masking.scrub`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ordering.errors import SettingError
from ordering.ticks import INFINITY, NEVER, format_tick
from tidegate.basics.secret_masking import scrub
from tidegate.platform.observe.logs import get_logger
from tidegate.platform.observe.reports import IngestReport, Report

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from tidegate.platform.settings.tables.watching import TracesSettings

# So many spans wait for a collector that does not answer; of a batch so many partitions or buckets get spans, those that took longest.
SPANS_MAX, _PARTS_MAX = 2_048, 32
_EVERY_MS, _EXPORT_S, _END_MS = 1_000, 5, 3_000
_NS = 1_000_000_000
_tracer: Tracer | None = None


@contextmanager
def exporting(settings: TracesSettings) -> Iterator[None]:
    """Send the traces of batches to the collector, if there is one, until the block is left. SettingError: the extra is not installed."""
    global _tracer
    if settings.endpoint is None:
        yield
        return
    provider = _make_provider(settings.endpoint.get_secret_value())
    _tracer = provider.get_tracer("tidegate")
    try:
        yield
    finally:
        _tracer = None
        provider.force_flush(_END_MS)
        provider.shutdown()


def trace_batch(stage: str, about: Mapping[str, Any], reports: Sequence[Report], wall_ns: Callable[[], int] = time.time_ns) -> None:
    """
    Trace a batch that has ended now, if traces are exported.

    Args:
        stage: ``ingest NAME`` or ``query NAME``.
        about: What is true of all of its batches, such as the topic that it writes.
    """
    tracer = _tracer
    if tracer is None or not reports:
        return
    from opentelemetry.trace import set_span_in_context

    end_ns = wall_ns()
    # Spark reports a batch when it ends: it began when its slowest part did.
    slowest = sorted(reports, key=_total_s, reverse=True)
    begin_ns = end_ns - round(_total_s(slowest[0]) * _NS)
    texts = {f"tidegate.{name}": scrub(value) if isinstance(value, str) else value for name, value in about.items()}
    counts = {"tidegate.read": sum(each.read for each in reports), "tidegate.bytes": sum(each.bytes for each in reports)}
    whole = tracer.start_span(
        f"{stage} batch", start_time=begin_ns, attributes={"tidegate.stage": stage, "tidegate.parts": len(reports), **texts, **counts}
    )
    inside = set_span_in_context(whole)
    for report in slowest[:_PARTS_MAX]:
        part_ns = end_ns - round(_total_s(report) * _NS)
        part = tracer.start_span(_name_of(report), inside, start_time=part_ns, attributes=_attributes_of(report))
        within, step_ns = set_span_in_context(part), part_ns
        for step, seconds in report.seconds.items():
            ended_ns = step_ns + round(seconds * _NS)
            tracer.start_span(step, within, start_time=step_ns).end(ended_ns)
            step_ns = ended_ns
        part.end(end_ns)
    whole.end(end_ns)


def _total_s(report: Report) -> float:
    return sum(report.seconds.values())


def _name_of(report: Report) -> str:
    return f"{report.topic}-{report.partition}" if isinstance(report, IngestReport) else f"bucket {report.bucket}"


def _attributes_of(report: Report) -> dict[str, Any]:
    found: dict[str, Any] = {"tidegate.read": report.read, "tidegate.bytes": report.bytes}
    found |= {f"tidegate.total.{name}": count for name, count in report.totals.items()}
    if NEVER < report.complete_us < INFINITY:
        found["tidegate.complete"] = format_tick(report.complete_us)
    if isinstance(report, IngestReport):
        found |= {"tidegate.partition": _name_of(report), "tidegate.next_offset": report.next_offset, "tidegate.held": report.held}
    else:
        found |= {"tidegate.bucket": report.bucket, "tidegate.duplicates": report.duplicates}
    return found


def _make_provider(endpoint: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    except ImportError as error:
        what, fix = f"traces need the package {error.name}", "install the extra otel, or remove traces.endpoint"
        raise SettingError(
            what, code="TG-TRACES-EXTRA", where="traces.endpoint", fix=fix, example="pip install 'tidegate[otel]'"
        ) from error
    log = get_logger("traces")

    class TellingExporter(SpanExporter):
        """Says once that the collector does not take spans, and once that it does again; the library says it each time."""

        def __init__(self) -> None:
            self._own, self._is_lost = OTLPSpanExporter(endpoint, timeout=_EXPORT_S), False

        def export(self, spans: Any) -> SpanExportResult:
            result = self._own.export(spans)
            is_lost = result is not SpanExportResult.SUCCESS
            if is_lost != self._is_lost:
                (log.warning if is_lost else log.info)("traces are not exported" if is_lost else "traces are exported again")
            self._is_lost = is_lost
            return result

        def shutdown(self) -> None:
            self._own.shutdown()  # type: ignore[no-untyped-call]

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    provider = TracerProvider(resource=Resource.create({"service.name": "tidegate"}), shutdown_on_exit=False)
    provider.add_span_processor(
        BatchSpanProcessor(TellingExporter(), SPANS_MAX, _EVERY_MS, max_export_batch_size=512, export_timeout_millis=_EXPORT_S * 1_000)
    )
    return provider
