"""When records were first planned: as arrival where ingest stamps, and as the clock by which absurd timestamps are told."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ingest.planner.arrival_stamps import PlanningTimes
from ordering.protocol.facts import FactKind
from ordering.ticks import DAY_US, TICK_MAX
from tidegate.platform.kafka.records import Records

SPANS = ((3, 1_000_000), (10, 2_000_000))


def records(*rows: tuple[int, int]) -> Records:
    """Records by offset and timestamp in milliseconds."""
    offset, stamp_ms = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    nothing = pa.nulls(len(rows), pa.binary())
    return Records(offset, stamp_ms, nothing, nothing)


def test_a_stamp_is_the_arrival_whatever_kafka_says() -> None:
    """Each record has that of the last span that begins at its offset or before; none is absurd."""
    moments, read = PlanningTimes(FactKind.STAMP, SPANS, 0, 1_000), records((5, -1), (9, 10**15), (10, 1), (12, 0))
    assert moments.arrival_us(read).tolist() == [1_000_000, 1_000_000, 2_000_000, 2_000_000]
    assert not moments.absurd_rows(read).any()


def test_a_timestamp_is_absurd_by_the_clock_of_the_first_time() -> None:
    """Missing ones are too; the limit itself is not. Arrival is Kafka's timestamp."""
    read = records((5, 1_500), (6, 1_501), (10, 2_500), (11, 2_501), (12, 0), (13, -1))
    moments = PlanningTimes(FactKind.CLOCK, SPANS, 0, 500_000)
    assert moments.absurd_rows(read).tolist() == [False, True, False, True, True, True]
    assert moments.arrival_us(read).tolist()[:2] == [1_500_000, 1_501_000]


def test_an_offset_of_an_earlier_version_has_one_clock_for_all_its_records() -> None:
    """It stands there in milliseconds; no limit lies beyond what can be carried."""
    read = records((0, 1_500), (1, 1_501))
    assert PlanningTimes(FactKind.CLOCK, (), 1_000, 500_000).absurd_rows(read).tolist() == [False, True]
    far = records((0, TICK_MAX // 1_000), (1, TICK_MAX // 1_000 + 1))
    assert PlanningTimes(FactKind.CLOCK, (), TICK_MAX // 1_000, DAY_US).absurd_rows(far).tolist() == [False, True]
