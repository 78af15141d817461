"""
A query over the results of a query with OVER: which key was written first is chance, and must not be seen.

Level 3 over two stages. The first ones read two topics of the same raw logs, whose CTIs stand at other places.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import ClassVar

import pytest
from support.bucket_oracle import Event
from support.bucket_runs import Channel, Query, Row, dense, run_bucket
from support.bucket_topics import Line, Topic
from support.query_runs import program

from ordering.protocol.punctuation import Roster, Spread
from query.buckets.bucket import BadRow, Bucket, BucketConfig, SourceTopic
from query.buckets.keyed import KeyedBucket
from query.buckets.merged import MergedBucket
from tidegate.language.expressions.binding.input_schema import InputSchema

ORDER_COUNTS = (
    "SELECT k, LAG(k) OVER (LIMIT DURATION(mcs, 9)) AS before, COUNT(*) OVER (LIMIT DURATION(mcs, 9)) AS nth FROM r",
    "SELECT System.Timestamp() AS at, COLLECT() AS r, TopOne() OVER (ORDER BY n) AS one FROM r GROUP BY TumblingWindow(mcs, 5)",
)


def lines_of(number: int, channel: Channel) -> Iterator[Line]:
    """Yield what a bucket wrote as the lines of its partition."""
    records: list[object] = []
    for row, (system_us, key, value) in enumerate(channel.rows):
        records += [cti for before, cti in channel.ctis if before == row]
        records.append(Event(number, channel.seq[row], system_us, channel.origin[row], key or b"", value))
    records += [cti for before, cti in channel.ctis if before == len(channel.rows)]
    yield from enumerate(records)  # type: ignore[misc]


def by_key(rows: list[Row]) -> dict[bytes, list[Row]]:
    """Return the results of each key in their order."""
    return {key: [row for row in rows if row[1] == key] for _, key, _ in rows}


class Noting(MergedBucket):
    """Notes where its bad rows stand: partition and number of a result."""

    places: ClassVar[list[tuple[int, int]]] = []

    def pop_bad_rows(self) -> list[BadRow]:
        rows = super().pop_bad_rows()
        self.places.extend((row.partition_id, row.offset) for row in rows)
        return rows


def chained(topic: Topic, kind: str, sql: str, seed: int, *, over: bool, merged: type[MergedBucket] = MergedBucket) -> list[Row]:
    """Return the results of a query over the results, in one output, of a query with OVER over a topic."""
    query, count = Query(kind, True), len(topic.partitions)
    first = [
        run_bucket(lambda at=at: query.bucket(topic, [at]), {at: topic.partitions[at]}, cuts=random.Random(seed)) for at in range(count)
    ]
    logs = {at: list(lines_of(at, said.channels[0])) for at, said in enumerate(first)}
    roster = Roster(1, count, Spread.ONE, over)

    def bucket(partitions: list[int]) -> Bucket:
        source = SourceTopic("r", count, {at: at for at in partitions}, is_result=True)
        made, config = program(sql, InputSchema("r", is_result=True)), BucketConfig([source], partitions[0], roster)
        return KeyedBucket(made, config, [scan.over for scan in made.plans[0].scans]) if over else merged(made, config)

    works = [[at] for at in range(count)] if over else [list(range(count))]
    said = [run_bucket(lambda work=work: bucket(work), {at: logs[at] for at in work}) for work in works]
    return [row for each in said for row in each.rows[0]]


@pytest.mark.parametrize("kind", ["passed_on", "tumbling"])
@pytest.mark.parametrize("sql", ORDER_COUNTS)
def test_a_query_over_results_of_keys_sees_the_events_alone(sql: str, kind: str) -> None:
    """Level 3: neither the order between keys, nor between the input partitions of a key, changes what follows."""
    raw = dense(5)
    one, other = (chained(raw.topic(writers, 2, over=True), kind, sql, writers, over=False) for writers in (1, 2))
    assert len(one) > 9
    assert one == other


def test_a_key_of_two_input_partitions_has_its_results_in_one_order() -> None:
    """Level 3: with OVER the key is one substream in the second stage, though it was two in the first."""
    raw, sql = dense(6), "SELECT COLLECT() AS r FROM r TIMESTAMP BY System.Timestamp() OVER k GROUP BY k, SnapshotWindow()"
    one, other = (by_key(chained(raw.topic(writers, 2, over=True), "tumbling", sql, writers, over=True)) for writers in (1, 2))
    assert sum(map(len, one.values())) > 9
    assert one == other


def test_a_dead_letter_names_the_number_of_a_result() -> None:
    """Not what its header holds beside the number."""
    sql = "SELECT CAST('x' + CAST(k AS nvarchar(max)) AS bigint) AS n FROM r WHERE k IS NOT NULL"
    chained(dense(5).topic(1, 2, over=True), "passed_on", sql, 1, over=False, merged=Noting)
    assert len(Noting.places) > 9
    assert {at for at, _ in Noting.places} == {0, 1}
    assert max(number for _, number in Noting.places) < 1_000
