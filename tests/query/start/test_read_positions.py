"""Where a query begins to read, and what is refused where retention has deleted what it needs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.query_plans import query_plan

from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import encode_cti, encode_event_headers
from ordering.ticks import MINUTE_US, SECOND_US
from query.config import Feed, LogStart, Partition, Promise, QueryPlan
from query.sql.bind import bind_outputs
from query.stage.offsets import QueryOffset
from query.start import read_positions as module
from query.start.read_positions import read_positions
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script
from tidegate.platform.kafka.ranges import Records

SQL = "SELECT COUNT(*) AS n FROM events TIMESTAMP BY at GROUP BY TumblingWindow(minute, 10)"
START_US = 60 * MINUTE_US
FROM_US = START_US - 10 * MINUTE_US
ROSTER, IN_ORDER = Roster(1, 2, Spread.ALL, True), Roster(1, 2, Spread.ALL, False)
ONE, OTHER = ("o", 0), ("o", 1)


class Brokers:
    """What brokers say of two partitions."""

    def __init__(self, kept: int, found: int, end: int = 10_000) -> None:
        self._kept, self._found, self._end = kept, found, end
        self.asked_us: int | None = None

    def starts(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset that is left; nothing was deleted in the second partition."""
        return {partition: self._kept if partition == ONE else 0 for partition in partitions}

    def offsets_from(self, partitions: Iterable[Partition], time_us: int) -> dict[Partition, int]:
        """By the time index."""
        self.asked_us = time_us
        return {partition: self._found if partition == ONE else 0 for partition in partitions}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Where they end."""
        return dict.fromkeys(partitions, self._end)


def plan_of(
    folder: Path, start_us: int | None = START_US, sql: str = SQL, promises: tuple[Mapping[int, Promise], ...] = ({},)
) -> QueryPlan:
    """A query over two partitions, merged in one bucket."""
    plans = bind_outputs(parse_script(sql), [InputSchema("events", "at")], into="out")
    return query_plan(
        plans,
        [Feed("events", "o", 2)],
        {"out": {"topic": "out"}},
        kafka={"bootstrap.servers": "nobody"},
        start_us=start_us,
        promises=promises,
        checkpoint=str(folder),
    )


def left(
    monkeypatch: pytest.MonkeyPatch,
    *ctis: tuple[int, int, int],
    events: tuple[tuple[int, int], ...] = (),
    roster: Roster = ROSTER,
    c_us: Sequence[int] = (),
) -> None:
    """Say which CTIs (roster number, offset, largest s; c_us: their c) and events (roster number, offset) are left of the first."""
    written = {
        offset: encode_cti(Cti(number, 0, c, 1, 0, 0, 0, us, roster, Cause.EVENT))
        for (number, offset, us), c in zip(ctis, c_us or [us for _, _, us in ctis], strict=True)
    }
    column = np.array([1])
    for number, offset in events:
        (header,) = encode_event_headers(column, column, column, column, column, np.zeros(1, dtype=np.uint16), number)
        written[offset] = header, b"{}"

    class Reader:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def read(self, start: int, end: int) -> Iterator[Records]:
            """Yield the records of a range, each alone."""
            for offset, record in sorted(written.items()):
                if start <= offset < end:
                    header, value = (pa.array([each], pa.binary()) for each in record)
                    yield Records(np.array([offset]), np.array([1]), pa.nulls(1, pa.binary()), value, header)

        def __enter__(self) -> Reader:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

    monkeypatch.setattr(module, "RangeReader", Reader)


def test_a_start_reads_from_its_look_back_before_it(tmp_path: Path) -> None:
    """By Kafka's time index; but always the last thousand records, where a final CTI stands."""
    brokers = Brokers(kept=0, found=500)
    assert read_positions(brokers, plan_of(tmp_path)) == {ONE: 500, OTHER: 0}  # type: ignore[arg-type]
    assert brokers.asked_us == FROM_US
    assert read_positions(Brokers(0, 9_900), plan_of(tmp_path))[ONE] == 9_000  # type: ignore[arg-type]
    assert read_positions(Brokers(0, 9_900), plan_of(tmp_path, None)) == {ONE: 0, OTHER: 0}  # type: ignore[arg-type]


@pytest.mark.parametrize("ctis", [(), ((0, 120, FROM_US - 9),), ((0, 120, FROM_US - 9), (1, 600, FROM_US))])
def test_where_nobody_vouches_for_what_was_deleted_the_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ctis: tuple[tuple[int, int, int], ...]
) -> None:
    """With OVER an event of a channel that was further may have been among it: each channel must have a CTI from before."""
    left(monkeypatch, *ctis)
    with pytest.raises(RefusedError) as caught:
        read_positions(Brokers(kept=100, found=500), plan_of(tmp_path))  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.where) == ("TG-RETENTION", "o-0@100")
    assert (
        "that must be read: o-0: needed is everything from 1970-01-01T00:50:00Z on, the first record left is at offset 100"
        in caught.value.what
    )


def test_a_cti_of_each_channel_from_before_vouches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its channel had released before it, deleted or not, is older than what must be read."""
    left(monkeypatch, (0, 120, FROM_US - 9), (1, 130, FROM_US - 1))
    assert read_positions(Brokers(kept=100, found=500), plan_of(tmp_path))[ONE] == 500  # type: ignore[arg-type]


@pytest.mark.parametrize(("roster", "vouches"), [(IN_ORDER, True), (ROSTER, False)])
def test_in_a_channel_that_is_in_order_an_event_vouches_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roster: Roster, vouches: bool
) -> None:
    """Which kind of topic it is, any CTI tells; with substreams an older event says nothing of the others."""
    left(monkeypatch, (0, 700, FROM_US), events=((0, 110), (1, 499)), roster=roster)
    brokers, plan = Brokers(kept=100, found=500), plan_of(tmp_path)
    if vouches:
        assert read_positions(brokers, plan)[ONE] == 500  # type: ignore[arg-type]
        left(monkeypatch, (0, 700, FROM_US), events=((0, 110), (1, 500)), roster=roster)
    with pytest.raises(RefusedError, match="TG-RETENTION"):
        read_positions(brokers, plan)  # type: ignore[arg-type]


def test_a_run_from_the_beginning_needs_all_of_it(tmp_path: Path) -> None:
    """So does one whose channels are not all known to have promised something."""
    for plan in (plan_of(tmp_path, None), replace(plan_of(tmp_path), promises=({1: Promise(START_US, 0, 0, 0)},), start_us=None)):
        with pytest.raises(RefusedError, match="o-0: needed is offset 0, the first record left is at offset 100"):
            read_positions(Brokers(kept=100, found=500), plan)  # type: ignore[arg-type]


def test_a_job_that_goes_on_needs_only_what_lies_ahead_of_its_checkpoint(tmp_path: Path) -> None:
    """However much of what it has read is gone by then."""
    for name in ("offsets", "commits"):
        (tmp_path / "spark" / name).mkdir(parents=True)
        (tmp_path / "spark" / name / "3").write_text("v1\n{}\n" + json.dumps(QueryOffset({0: 700, 1: 20}).to_json()))
    assert read_positions(Brokers(kept=700, found=0), plan_of(tmp_path, None)) == {ONE: 700, OTHER: 20}  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="o-0: needed is offset 700, the first record left is at offset 701"):
        read_positions(Brokers(kept=701, found=0), plan_of(tmp_path, None))  # type: ignore[arg-type]


def test_what_a_run_with_over_must_read_before_its_start_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers begin where each channel is settled, not at the first record of X; from there everything must be vouched for."""
    left(monkeypatch, (0, 120, FROM_US - 9), (1, 130, FROM_US - 1))
    plan = replace(plan_of(tmp_path), over=True, log_starts={0: LogStart(FROM_US - SECOND_US, 400), 1: LogStart(None, 0)})
    assert read_positions(Brokers(kept=100, found=500), plan) == {ONE: 400, OTHER: 0}  # type: ignore[arg-type]
    for first in (100, 0):
        gone = replace(plan, log_starts={**plan.log_starts, 0: LogStart(None, first)})
        with pytest.raises(RefusedError, match="TG-RETENTION"):
            read_positions(Brokers(kept=100, found=500), gone)  # type: ignore[arg-type]
