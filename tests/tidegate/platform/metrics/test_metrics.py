"""What Prometheus is told: counters that only rise, delays whose parts add up, one name for each number of the specification."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.hostile_text import HOSTILE, commands_in

from ordering.errors import SettingError
from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.basics.visible_text import visible
from tidegate.platform.metrics.job_metrics import Metrics
from tidegate.platform.metrics.null_shares import NullShare
from tidegate.platform.metrics.watermark_delay import CAUSES, Tolerances, delay_causes
from tidegate.platform.observe.reports import BucketReport, ColumnNulls, IngestReport, InputNulls
from tidegate.platform.stack.embedded import free_port

NOW_US = 1_700_000_000 * SECOND_US
TOTALS = {
    "events_in": 90,
    "early": 1,
    "late_adjusted": 2,
    "late_dropped": 3,
    "out_of_order_adjusted": 4,
    "out_of_order_dropped": 5,
    "released": 70,
    "arrival_clamps": 6,
    "estimates_used": 7,
    "dead_letter_malformed": 8,
}


def report(partition: int = 0, **changed: Any) -> IngestReport:
    """What a stage tells: 10 s behind its newest arrival, which is 4 s old."""
    made = {
        "topic": "flights",
        "partition": partition,
        "next_offset": 90,
        "arrival_us": NOW_US - 4 * SECOND_US,
        "watermark_us": NOW_US - 14 * SECOND_US,
        "c": NOW_US - 14 * SECOND_US,
        "cause": "event",
        "held": 11,
        "substreams": 12,
        "totals": TOTALS,
        "seconds": {"read": 0.5, "parse": 0.25, "order": 0.25, "write": 0.5, "acknowledge": 1.0},
    }
    return IngestReport.of_dict({**made, **changed})


def seconds(parts: dict[str, int]) -> dict[str, float]:
    """The causes that account for something."""
    return {cause: part / SECOND_US for cause, part in parts.items() if part}


TOLERANCES = Tolerances(reorder_us=3 * SECOND_US, late_us=5 * SECOND_US)


def test_a_delay_is_put_down_to_its_causes() -> None:
    """What nobody else accounts for is how old events were when they arrived."""
    told = seconds(delay_causes(report(), TOLERANCES, 0, NOW_US))
    assert told == {"sink": 1.5, "pipeline": 1.0, "silence": 1.5, "reorder": 3.0, "source": 7.0}
    told = seconds(delay_causes(report(cause="late floor"), TOLERANCES, 0, NOW_US))
    assert told == {"sink": 1.5, "pipeline": 1.0, "silence": 1.5, "late": 5.0, "source": 5.0}


def test_work_of_a_batch_that_stayed_open_delays_nothing() -> None:
    """It is that of half a minute; a record has waited for one round."""
    told = seconds(delay_causes(report(open_batch=7, seen_us=1), TOLERANCES, 0, NOW_US))
    assert told == {"silence": 4.0, "reorder": 3.0, "source": 7.0}


def test_records_that_wait_make_the_reader_the_cause_and_not_silence() -> None:
    """The newest arrival that was read is old because more was not read."""
    told = seconds(delay_causes(report(), TOLERANCES, 17, NOW_US))
    assert told["reader_behind"] == 1.5
    assert "silence" not in told


@pytest.mark.parametrize("watermark_us", [NEVER, INFINITY])
def test_before_the_first_record_and_at_the_end_there_is_no_delay(watermark_us: int) -> None:
    """Neither is a time."""
    assert delay_causes(report(watermark_us=watermark_us), TOLERANCES, 0, NOW_US) == {}


@given(st.data())
def test_the_causes_of_a_delay_are_not_negative_and_add_up_to_it(data: st.DataObject) -> None:
    """Whatever the clocks say: also for a watermark ahead of the clock."""
    near = st.integers(-100 * SECOND_US, 100 * SECOND_US)
    spent = st.floats(0, 50, allow_nan=False)
    made = report(
        arrival_us=NOW_US - data.draw(near),
        watermark_us=NOW_US - data.draw(near),
        cause=data.draw(st.sampled_from(["event", "late floor", "estimate", "import"])),
        seconds={name: data.draw(spent) for name in ("read", "order", "write", "acknowledge")},
    )
    tolerances = Tolerances(data.draw(st.integers(0, 10 * SECOND_US)), data.draw(st.none() | st.integers(0, 10 * SECOND_US)))
    parts = delay_causes(made, tolerances, data.draw(st.integers(0, 1)), NOW_US)
    assert tuple(parts) == CAUSES
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == max(NOW_US - made.watermark_us, 0)


def fetch(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """What Prometheus reads: by sample name and label values, without help texts; each family has one."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total"), sample.name
            labels = tuple(sample.labels[name] for name in sorted(sample.labels, key=_ORDER.index))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


_PROCESS = ("job_name", "state", "version", "spark", "python")
_ORDER = (
    "input",
    "query",
    "output",
    "le",
    "topic",
    "partition",
    "bucket",
    "action",
    "reason",
    "cause",
    "step",
    "column",
    "kind",
    *_PROCESS,
)


def test_each_number_of_the_specification_is_fetched_by_input_topic_and_partition() -> None:
    """Names, labels and kinds as docs/operate/metrics.md lists them."""
    port = free_port()
    metrics = Metrics(port, now_us=lambda: NOW_US)
    metrics.add_input("flights", TOLERANCES.reorder_us, TOLERANCES.late_us)
    metrics.set_ends("flights", {("flights", 0): 100, ("flights", 1): 90})
    metrics.accept_reports("flights", [report(0), report(1)])
    found = fetch(port)
    where = "flights", "flights", "0"
    assert found["tidegate_events_in_total"] == {where: 90, ("flights", "flights", "1"): 90}
    assert found["tidegate_early_input_events_total"][*where, "dropped"] == 1
    assert found["tidegate_late_input_events_total"][*where, "adjusted"] == 2
    assert found["tidegate_late_input_events_total"][*where, "dropped"] == 3
    assert found["tidegate_out_of_order_events_total"][*where, "adjusted"] == 4
    assert found["tidegate_out_of_order_events_total"][*where, "dropped"] == 5
    assert found["tidegate_unreadable_events_total"][*where, "malformed"] == 8
    assert found["tidegate_held_events"][where] == 11
    assert found["tidegate_substreams"][where] == 12
    assert found["tidegate_released_events_total"][where] == 70
    assert found["tidegate_arrival_clamps_total"][where] == 6
    assert found["tidegate_estimates_used_total"][where] == 7
    assert found["tidegate_consumer_lag"] == {where: 10, ("flights", "flights", "1"): 0}
    assert found["tidegate_watermark_timestamp_seconds"][where] == 1_700_000_000 - 14
    delays = {labels: value for labels, value in found["tidegate_watermark_delay_seconds"].items() if labels[:3] == where}
    assert sum(delays.values()) == 14
    assert {labels[3] for labels in delays} == set(CAUSES)
    metrics.accept_reports("flights", [report(0, totals={**TOTALS, "events_in": 95}, next_offset=95)])
    found = fetch(port)
    assert found["tidegate_events_in_total"][where] == 95
    assert found["tidegate_stage_seconds_total"][*where, "read"] == 1.0


def test_an_input_that_has_failed_is_told_while_the_process_lives_on() -> None:
    """The others go on, so the process answers Prometheus: only this number shows it."""
    port = free_port()
    metrics = Metrics(port, now_us=lambda: NOW_US)
    for name in ("flights", "weather"):
        metrics.add_input(name, 0, 0)
    assert fetch(port)["tidegate_input_up"] == {("flights",): 1, ("weather",): 1}
    metrics.fail_input("weather")
    assert fetch(port)["tidegate_input_up"] == {("flights",): 1, ("weather",): 0}


def test_a_query_tells_its_counts_and_its_delay_by_bucket() -> None:
    """What it has accepted, what it has written, how far its results' time is behind."""
    port = free_port()
    metrics = Metrics(port, now_us=lambda: NOW_US)
    totals = {"events": 5, "results": 2}
    spent = {"write": 1, "compute": 0.5}
    absent = {"flights": ("dealy",), "taxis": ()}
    nulls = {"flights": InputNulls(200, {"delay": ColumnNulls(150, 100)}), "taxis": InputNulls(10, {})}
    metrics.accept_query_reports(
        "counts",
        [
            BucketReport(
                1,
                complete_us=NOW_US - 3 * SECOND_US,
                totals=totals,
                duplicates=4,
                seconds=spent,
                absent=absent,
                nulls=nulls,
            )
        ],
    )
    metrics.set_null_columns("counts", [NullShare("flights", "delay", 200, 150, 100)])
    metrics.set_query_lags("counts", {("flights.ordered", 0): 4, ("flights.ordered", 1): 0})
    found = fetch(port)
    assert found["tidegate_query_events_total"] == {("counts", "1"): 5}
    assert found["tidegate_query_results_total"] == {("counts", "1"): 2}
    assert found["tidegate_query_bad_rows_total"] == {("counts", "1"): 0}
    assert found["tidegate_query_duplicates_total"] == {("counts", "1"): 4}
    assert found["tidegate_query_absent_columns"] == {("flights", "counts", "1"): 1, ("taxis", "counts", "1"): 0}
    assert found["tidegate_query_null_share"] == {
        ("flights", "counts", "delay", "null"): 0.75,
        ("flights", "counts", "delay", "absent"): 0.5,
    }
    assert found["tidegate_query_null_columns"] == {("counts",): 1}
    causes = {"sink": 1, "pipeline": 0.5, "reader_behind": 1.5, "input": 0}
    assert found["tidegate_query_watermark_delay_seconds"] == {("counts", "1", cause): part for cause, part in causes.items()}
    assert found["tidegate_query_consumer_lag"] == {("counts", "flights.ordered", "0"): 4, ("counts", "flights.ordered", "1"): 0}
    metrics.set_query_lags("counts", {("flights.ordered", 0): 0})
    assert fetch(port)["tidegate_query_watermark_delay_seconds"]["counts", "1", "input"] == 1.5


def test_the_seconds_of_a_query_add_up_by_bucket_and_step() -> None:
    """As those of an input's stage: each report has those of its batch."""
    port = free_port()
    metrics = Metrics(port, now_us=lambda: NOW_US)
    for spent in ({"read": 0.5, "compute": 2.0, "write": 0.25, "acknowledge": 1.0}, {"read": 0.25, "compute": 1.0}):
        metrics.accept_query_reports("counts", [BucketReport(0, seconds=spent), BucketReport(1, seconds={"compute": 4.0})])
    by_step = {"read": 0.75, "compute": 3.0, "write": 0.25, "acknowledge": 1.0}
    expected = {("counts", "0", step): seconds for step, seconds in by_step.items()} | {("counts", "1", "compute"): 8.0}
    assert fetch(port)["tidegate_query_stage_seconds_total"] == expected


def test_delays_of_results_add_up_by_output() -> None:
    """A histogram over all buckets and batches; an output without results has none."""
    port = free_port()
    metrics = Metrics(port, now_us=lambda: NOW_US)
    for delays in ({"counts": {80: 2, 1_500: 1}}, {"counts": {80: 1}, "sums": {7_000: 4}}, {}):
        metrics.accept_query_reports("counts", [BucketReport(0, delays=delays), BucketReport(1)])
    found = fetch(port)
    assert found["tidegate_query_result_delay_seconds_count"] == {("counts", "counts"): 4, ("counts", "sums"): 4}
    assert found["tidegate_query_result_delay_seconds_sum"] == {("counts", "counts"): pytest.approx(1.74), ("counts", "sums"): 28}
    buckets = found["tidegate_query_result_delay_seconds_bucket"]
    of_counts = {labels: count for labels, count in buckets.items() if "sums" not in labels}
    assert sorted(of_counts.values()) == [0] * 3 + [3] * 4 + [4] * 16


def test_hostile_names_stay_one_label_each() -> None:
    """A name ends no line, adds no metric, and a terminal that shows the page obeys none of it."""
    port = free_port()
    metrics = Metrics(port, now_us=lambda: NOW_US)
    name = f'{HOSTILE}",topic="other"}} 1\ntidegate_forged 1\n'
    metrics.add_input(name, 0, None)
    metrics.accept_reports(name, [report()])
    metrics.set_ends(name, {("flights", 0): 100})
    metrics.accept_query_reports(name, [BucketReport(1, complete_us=NOW_US, totals={"events": 5})])
    metrics.set_query_lags(name, {("flights.ordered", 0): 4})
    page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    assert commands_in(page) == []
    assert "\ntidegate_forged" not in page
    found = fetch(port)
    assert set(found["tidegate_events_in_total"]) == {(visible(name), "flights", "0")}
    assert found["tidegate_consumer_lag"][visible(name), "flights", "0"] == 10
    assert found["tidegate_query_events_total"] == {(visible(name), "1"): 5}
    assert found["tidegate_query_consumer_lag"] == {(visible(name), "flights.ordered", "0"): 4}


def test_a_port_that_is_taken_is_told() -> None:
    """Two jobs on one machine need two."""
    port = free_port()
    Metrics(port)
    with pytest.raises(SettingError) as error:
        Metrics(port)
    assert error.value.code == "TG-SETTING-PORT"


def test_only_metrics_with_values_are_exported() -> None:
    """An ingest shows no metrics of queries, and a query none of inputs."""
    ingest, query = Metrics(free_port()), Metrics(free_port())
    ingest.add_input("flights", 0, 0)
    ingest.accept_reports("flights", [report()])
    query.accept_query_reports("counts", [BucketReport(1, complete_us=NOW_US)])
    assert [family.name for family in ingest.collect() if "query" in family.name or not family.samples] == []
    of_query = {family.name for family in query.collect()}
    assert {name for name in of_query if not name.startswith("tidegate_query_")} == {"tidegate_build_info"}
