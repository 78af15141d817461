"""What the stage does at the end of a range, where no record is left to read."""

from __future__ import annotations

import json

import pytest

from ingest.config import IngestPlan
from ingest.fields import FieldReader
from ingest.offsets import PlannedPosition
from ingest.planned_range import IngestRange
from ingest.stage.processor import RangeWalk
from ordering.ticks import SECOND_US
from tidegate.kafka.writer import GaplessProducer
from tidegate.settings.tables.inputs import InputSettings
from tidegate.settings.tables.redis import RedisSettings

RAW = ("raw", 0)
PLAN = IngestPlan(
    settings=InputSettings.model_validate({"__name__": "raw", "timestamp_by": "t", "late": "off"}),
    kafka={},
    redis=RedisSettings(),
    partitions=(RAW,),
    topic_ids={"raw": "id"},
    tasks=1,
    starts={RAW: PlannedPosition(10)},
    output_partitions=1,
    estimates=frozenset({"raw"}),
    until_end=False,
    checkpoint="",
)


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
        report = json.loads(RangeWalk(PLAN, model, state, FieldReader("t", "auto", None), producer).run(planned))
    finally:
        producer.discard()
    assert (report["next_offset"], report["arrival_us"]) == (14, raised_us)
    assert report["totals"]["estimates_used"] == 1
