"""A long range of a real topic: its CTIs do not wait for its end, so a reader holds little of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from support.ingest_plans import ingest_plan, input_settings
from support.stack.topics import check_promises, create, fresh, read_ordered

from ingest.planned_range import IngestRange, RangeMarks
from ingest.stage.range_walk import RangeWalk
from tidegate.platform.kafka.records import Records
from tidegate.platform.kafka.writer import GaplessProducer
from tidegate.records.fields import FieldReader

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

PIECES, OF_PIECE = 6, 6
PAD = b"x" * (900 << 10)


def test_promises_follow_the_events_within_a_range(stack: Stack) -> None:
    """Level 1: what CTIs say holds wherever they stand; two pieces of 5 MiB are promised before a third is written."""
    topic = create(stack.bootstrap, fresh("ordered"), 1)
    kafka = {"bootstrap.servers": stack.bootstrap}
    plan = ingest_plan(settings=input_settings(late="0s", ordered_topic=topic), kafka=kafka)
    model = plan.model(0)
    producer = GaplessProducer(kafka)
    try:
        walk = RangeWalk(plan, model, model.new_state(), FieldReader("t", "auto", None), producer)
        walk.run(IngestRange(0, 0, "raw", 0, 0, 0, planned_ms=10**12))
        for piece in range(PIECES):
            offsets = np.arange(piece * OF_PIECE, (piece + 1) * OF_PIECE)
            at_ms = 10**12 + 1_000 * offsets
            values = pa.array([b'{"t": %d, "x": "%s"}' % (1_000 * ms, PAD) for ms in at_ms.tolist()])
            walk.judge("raw", 0, Records(offsets, at_ms, pa.nulls(OF_PIECE, pa.binary()), values), RangeMarks((), ()))
        producer.flush(topic)
    finally:
        producer.discard()
    found = read_ordered(stack.bootstrap, topic, 1)
    check_promises(found)
    # The last event of a piece waits for a later time.
    assert [event.seq for event in found.events[0, 0]] == [*range(PIECES * OF_PIECE - 1)]
    assert [accepted for _, accepted in found.ctis[0, 0]] == [2 * OF_PIECE - 1, 4 * OF_PIECE - 1]
