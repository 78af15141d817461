"""Traces of batches, as a collector gets them: one span a batch, its parts and their steps below; off, slow and absent collectors."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from structlog.testing import capture_logs
from support.trace_collector import collecting

from ordering.errors import SettingError
from tidegate.basics.secret_masking import remember
from tidegate.platform.observe.reports import BucketReport, IngestReport
from tidegate.platform.observe.traces import SPANS_MAX, exporting, trace_batch
from tidegate.platform.settings.tables.watching import TracesSettings
from tidegate.platform.stack.embedded import free_port

END_NS = 1_767_600_000 * 1_000_000_000


def settings(endpoint: str) -> TracesSettings:
    """Return the settings of a collector."""
    return TracesSettings.model_validate({"endpoint": endpoint})


def test_a_batch_is_a_span_with_its_parts_and_their_steps() -> None:
    """Times fit into each other: the batch lasts as long as its slowest part, the steps of a part fill it."""
    slow = IngestReport("cars", 1, next_offset=70, complete_us=1_767_600_000_000_000, read=50, bytes=900, held=3, totals={"events_in": 60})
    reports = [
        IngestReport("cars", 0, next_offset=9, read=4, bytes=80, seconds={"read": 0.25, "write": 0.25}),
        IngestReport(**{name: getattr(slow, name) for name in slow.__slots__} | {"seconds": {"read": 1.0, "parse": 0.5, "write": 0.5}}),
    ]
    with collecting() as collector, exporting(settings(collector.endpoint)):
        trace_batch("ingest cars", {"input": "cars", "ordered_topic": "cars.ordered"}, reports, lambda: END_NS)
        trace_batch("query counts", {"reads": "cars.ordered"}, [BucketReport(0, read=7, seconds={"compute": 0.1})], lambda: END_NS)
        trace_batch("ingest cars", {}, [], lambda: END_NS)
    [whole] = collector.named("ingest cars batch")
    assert (whole.seconds, whole.end_ns, whole.parent) == (2.0, END_NS, b"")
    assert whole.attributes == {
        "tidegate.stage": "ingest cars",
        "tidegate.parts": 2,
        "tidegate.input": "cars",
        "tidegate.ordered_topic": "cars.ordered",
        "tidegate.read": 54,
        "tidegate.bytes": 980,
    }
    parts = {each.name: each for each in collector.below(whole)}
    assert {name: each.seconds for name, each in parts.items()} == {"cars-1": 2.0, "cars-0": 0.5}
    assert parts["cars-1"].attributes == {
        "tidegate.read": 50,
        "tidegate.bytes": 900,
        "tidegate.total.events_in": 60,
        "tidegate.complete": "2026-01-05T08:00:00Z",
        "tidegate.partition": "cars-1",
        "tidegate.next_offset": 70,
        "tidegate.held": 3,
    }
    steps = collector.below(parts["cars-1"])
    assert [(each.name, each.seconds) for each in steps] == [("read", 1.0), ("parse", 0.5), ("write", 0.5)]
    assert [each.begin_ns for each in steps] == [parts["cars-1"].begin_ns, *(each.end_ns for each in steps[:-1])]
    [other] = collector.named("query counts batch")
    assert [each.name for each in collector.below(other)] == ["bucket 0"]
    assert other.trace != whole.trace
    assert all(each["service.name"] == "tidegate" for each in collector.resources)


def test_no_secret_is_in_a_span() -> None:
    """What was read as a secret is masked, wherever it stands."""
    remember("sesame-17")
    with collecting() as collector, exporting(settings(collector.endpoint)):
        trace_batch("query counts", {"reads": "redis://:sesame-17@host"}, [BucketReport(0, seconds={"read": 1.0})])
    assert collector.spans
    assert not any(b"sesame-17" in body for body in collector.bodies)


def test_a_collector_that_is_away_is_said_once_and_stops_nothing() -> None:
    """The batches are not delayed; spans beyond the most that wait are dropped; its return is said, and what comes then arrives."""
    port = free_port()
    report = BucketReport(0, seconds={"read": 0.5})
    with capture_logs() as logged, exporting(settings(f"http://127.0.0.1:{port}/v1/traces")):
        began_s = time.monotonic()
        for _ in range(SPANS_MAX):
            trace_batch("query counts", {}, [report])
        assert time.monotonic() - began_s < 30, "three spans a batch, and nothing waits for a collector"
        _until(lambda: [each["event"] for each in logged if "traces" in each["event"]] == ["traces are not exported"])
        with collecting(port) as collector:
            trace_batch("query late", {}, [report])
            _until(lambda: bool(collector.named("query late batch")))
            _until(lambda: [each["event"] for each in logged if "traces" in each["event"]][-1] == "traces are exported again")
    assert len([each for each in logged if "traces are not" in each["event"]]) == 1


def _until(holds) -> None:  # type: ignore[no-untyped-def]
    deadline_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_nothing_of_it_is_imported_when_it_is_off() -> None:
    """A job without an endpoint loads nothing that makes or sends traces."""
    program = (
        "import sys, ingest.run, query.run\n"
        "from tidegate.platform.observe.traces import exporting, trace_batch\n"
        "from tidegate.platform.observe.reports import BucketReport\n"
        "from tidegate.platform.settings.load import Settings\n"
        "with exporting(Settings().traces): trace_batch('query x', {}, [BucketReport(0)])\n"
        # redis-py looks for OpenTelemetry by itself where it is installed; it needs nothing of traces.
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry.exporter', 'opentelemetry.sdk.trace'))]\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


def test_without_the_extra_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job does not start and trace nothing."""
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingError) as refused, exporting(settings("http://127.0.0.1:4318/v1/traces")):
        pass
    assert (refused.value.code, refused.value.example) == ("TG-TRACES-EXTRA", "pip install 'tidegate[otel]'")
