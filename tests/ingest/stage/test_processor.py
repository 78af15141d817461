"""What the stage does with records that are larger than planned for, and at the end of a range, where no record is left to read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from support.ingest_plans import ingest_plan, input_settings

from ingest.offsets import PlannedPosition
from ingest.planned_range import IngestRange, RangeMarks
from ingest.replay.walk import ReplayingWalk
from ingest.stage.range_walk import RangeWalk
from ordering.protocol.facts import Fact, FactKind
from ordering.ticks import SECOND_US
from tidegate.platform.checkpoint.spilling import spill
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.writer import GaplessProducer
from tidegate.platform.observe.logs import configure_worker
from tidegate.platform.settings.tables.inputs import InputSettings
from tidegate.records.fields import FieldReader

RAW = ("raw", 0)
PLAN = ingest_plan(settings=input_settings(late="off"), starts={RAW: PlannedPosition(10)}, estimates=frozenset({"raw"}))


@pytest.mark.parametrize("position", [10, 12, 14])
def test_an_estimate_among_records_that_tell_no_arrival_is_applied_all_the_same(position: int) -> None:
    """
    Level 1: of a range that ends in holes, or in absurd arrivals, no estimate is lost, wherever the range was cut.

    Offsets 10 to 13 hold no record that could be judged, so the state still stands at 10. With late off no CTI is due: no
    broker is needed.
    """
    raised_us = 1_000 * SECOND_US
    planned = IngestRange(0, 0, "raw", 0, 14, 14, marks=((position, raised_us),))
    model = PLAN.model(0)
    state = model.new_state()
    state.next_offset = 10
    producer = GaplessProducer({"bootstrap.servers": "127.0.0.1:1"})
    try:
        report = RangeWalk(PLAN, model, state, FieldReader("t", "auto", None), producer, lambda: None).run(planned)
    finally:
        producer.discard()
    assert (report.next_offset, report.arrival_us) == (14, raised_us)
    assert report.totals["estimates_used"] == 1


def test_a_partition_that_joins_says_so_before_anything_of_it_is_read() -> None:
    """Its range is empty, and its CTI at J leaves all the same, with the fact."""
    joined_us = 1_000 * SECOND_US
    plan = replace(PLAN, settings=input_settings())
    model = plan.model(0, joined_us=joined_us)
    state = model.new_state()
    state.next_offset = 10
    producer = GaplessProducer({"bootstrap.servers": "127.0.0.1:1"})
    try:
        walk = RangeWalk(plan, model, state, FieldReader("t", "auto", None), producer, lambda: None)
        walk.run(IngestRange(0, 0, "raw", 0, 10, 10, joined_us=joined_us))
    finally:
        producer.discard()
    (cti,) = walk.ctis
    assert (cti.c, cti.n, cti.next_offset) == (joined_us, 0, 10)
    assert Fact(FactKind.JOIN, 0, joined_us) in (cti.facts or ())


def test_what_a_range_of_large_records_holds_is_saved_as_it_grows() -> None:
    """The planner knows the size of earlier records only: however large a range is, little of it waits in memory for its end."""
    most = 2**20
    settings = {"__name__": "raw", "timestamp_by": "t", "late": "off", "reorder": "1h", "max_bytes_per_batch": 2 * most}
    plan = replace(PLAN, settings=InputSettings.model_validate(settings), tasks=2)
    model = plan.model(0)
    state, saved, waiting = model.new_state(), dict[int, bytes](), []

    def save() -> None:
        delta = state.save()
        for number in delta.delete:
            saved.pop(number)
        saved.update(delta.put)
        spill(state, most)

    producer = GaplessProducer({"bootstrap.servers": "127.0.0.1:1"})
    try:
        walk = RangeWalk(plan, model, state, FieldReader("t", "auto", None), producer, save)
        walk.run(IngestRange(0, 0, "raw", 0, 0, 0, planned_ms=10**12))
        for offset in range(200):
            at_us = 10**15 + offset
            value = b'{"t": %d, "x": "%s"}' % (at_us, b"x" * 2**17)
            records = Records(np.array([offset]), np.array([at_us // 1000]), pa.nulls(1, pa.binary()), pa.array([value]))
            walk.judge("raw", 0, records, RangeMarks((), ()))
            waiting.append(sum(chunk.held.rows.payload_bytes for chunk in state.all_chunks()))
        restored = model.restore(state.save().head, saved)
    finally:
        producer.discard()
    assert max(waiting) <= 3 * most, "25 MiB are held, in files but for the last pieces"
    assert restored.held_count > 190


def test_keys_that_are_texts_and_numbers_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """5 and "5" are one substream; two keys of which each has a kind of its own are none of it."""
    settings = {"__name__": "raw", "timestamp_by": "t", "over": "k, p.n", "late": "5s"}
    plan = replace(PLAN, settings=InputSettings.model_validate(settings))
    walk = ReplayingWalk(plan, RAW, ())
    configure_worker()
    for offset, keys in enumerate(['"k":"x","p":{"n":1}', '"k":null', '"k":"5","p":{"n":2.5}', '"k":5', '"k":true', '"k":"y"'], start=10):
        records = Records(np.array([offset]), np.array([10**6]), pa.nulls(1, pa.binary()), pa.array([b'{"t":1000,%b}' % keys.encode()]))
        walk.judge(*RAW, records, RangeMarks((), ()))
    told = [line for line in capsys.readouterr().err.splitlines() if "a number and the text that spells it are one substream" in line]
    assert len(told) == 1
    assert '"key": "k"' in told[0] or "key=k" in told[0]
    totals = walk._state.totals
    assert [totals.get(name, 0) for name in ("over_texts", "over_values", "over1_texts", "over1_values")] == [3, 2, 0, 2]
