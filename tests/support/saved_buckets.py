"""
Buckets saved in the middle of a log, as files: what a bucket's state was, what of the log follows, what it must say to that.

``python tests/support/saved_buckets.py FOLDER`` writes such files with the present version of a bucket's state.
"""

from __future__ import annotations

import json
import random
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.bucket_oracle import EVERY_CTI, Event, Question, Result, SlowPace
from support.bucket_topics import Line, Topic, decoded_range, middle_of, topic_of
from support.budgets import budget_of
from support.query_runs import program

from ordering.model.step import Released
from ordering.policies import Policies
from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.testing import Record
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.buckets.substreams import SubstreamBucket
from query.engine import gathering, retention
from query.operators.windows import compacting
from tidegate.basics.budget import BUDGET
from tidegate.language.expressions.binding.input_schema import InputSchema

SPAN_US = 5


@dataclass(frozen=True)
class Plan:
    """Which bucket it is: the question, its partition (None: all of them), how many there are, where results begin, its pace, a shift."""

    question: Question
    partition: int | None
    partitions: int
    start_us: int | None = None
    pace: SlowPace = EVERY_CTI
    shift_us: int = 0

    def bucket(self) -> Bucket:
        """Return the bucket before its first record."""
        asked, read = self.question.sql, f"FROM {self.question.input}"
        sql = asked.replace(read, f"FROM shift({self.question.input}, mcs, {self.shift_us})") if self.shift_us else asked
        query = program(sql, InputSchema("arrivals"), InputSchema("keyed", "t", "k"))
        read_from_us = None if self.start_us is None else self.start_us - query.plans[0].lookback_us
        rest = self.start_us, read_from_us, (SPAN_US,), Pace(self.pace.every_events, self.pace.every_us, self.pace.delay_us)
        if self.partition is None:
            everything = SourceTopic(self.question.input, self.partitions, {at: at for at in range(self.partitions)})
            return MergedBucket(query, BucketConfig([everything], 0, Roster(1, 1, Spread.ONE, False), *rest))
        alone = SourceTopic(self.question.input, self.partitions, {self.partition: self.partition})
        return SubstreamBucket(query, BucketConfig([alone], self.partition, Roster(1, self.partitions, Spread.ONE, True), *rest))


@dataclass(frozen=True)
class Saved:
    """A bucket's state, the log that follows by partition, and the results and result files that then come until the end."""

    plan: Plan
    head: bytes
    chunks: dict[int, bytes]
    rest: dict[int, list[Line]]
    results: list[Result]
    spans: list[tuple[int, list[Result]]]

    @property
    def version(self) -> int:
        """The version that describes the state."""
        return int(json.loads(self.head)["version"])

    def to_json(self) -> dict[str, Any]:
        """Return the state as it is kept in a file."""
        question, pace = self.plan.question, self.plan.pace
        shift = [self.plan.shift_us] if self.plan.shift_us else []
        where = [self.plan.partition, self.plan.partitions, self.plan.start_us]
        return {
            "about": f"a bucket saved by version {self.version}, the log that follows, and what it then said",
            "plan": [question.over, question.size_us, question.hop_us, *where, pace.every_events, pace.every_us, pace.delay_us, *shift],
            "head": self.head.decode(),
            "chunks": {str(number): b64encode(octets).decode() for number, octets in self.chunks.items()},
            "rest": {str(partition): [_line_out(*line) for line in lines] for partition, lines in self.rest.items()},
            "results": _results_out(self.results),
            "spans": [[start_us, _results_out(rows)] for start_us, rows in self.spans],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Saved:
        """Return what a file holds."""
        over, size_us, hop_us, partition, partitions, start_us, *rest = fields["plan"]
        return cls(
            Plan(Question(over, size_us, hop_us), partition, partitions, start_us, SlowPace(*rest[:3]), *rest[3:]),
            fields["head"].encode(),
            {int(number): b64decode(text) for number, text in fields["chunks"].items()},
            {int(partition): [_line_in(line) for line in lines] for partition, lines in fields["rest"].items()},
            _results_in(fields["results"]),
            [(start_us, _results_in(rows)) for start_us, rows in fields["spans"]],
        )


def _results_out(results: list[Result]) -> list[list[Any]]:
    return [[system_us, b64encode(key).decode(), value.decode()] for system_us, key, value in results]


def _results_in(rows: list[list[Any]]) -> list[Result]:
    return [(system_us, b64decode(key), value.encode()) for system_us, key, value in rows]


def _line_out(offset: int, record: Event | Cti) -> list[Any]:
    if isinstance(record, Event):
        texts = (b64encode(octets).decode() for octets in (record.key, record.value))
        return [offset, "event", record.number, record.seq, record.system_us, record.origin, *texts]
    roster = record.roster
    who = [roster.version, roster.inputs, roster.spread.value, roster.substreams]
    what = [record.c, record.n, record.ahead, record.next_offset, record.arrival_us, record.largest_us]
    listed = [[b64encode(key).decode(), w] for key, w in record.listed]
    return [offset, "cti", record.number, record.output_partition, *what, who, record.cause.value, listed, record.part, record.parts]


def _line_in(line: list[Any]) -> Line:
    offset, kind, *fields = line
    if kind == "event":
        number, seq, system_us, origin, key, value = fields
        return offset, Event(number, seq, system_us, origin, b64decode(key), b64decode(value))
    number, partition, c, n, ahead, next_offset, arrival_us, largest_us, (version, inputs, spread, substreams), cause, *more = fields
    roster = Roster(version, inputs, Spread(spread), substreams)
    entries, part, parts = more or ([], 0, 1)
    listed = tuple((b64decode(key), w) for key, w in entries)
    return offset, Cti(number, partition, c, n, ahead, next_offset, arrival_us, largest_us, roster, Cause(cause), listed, part, parts)


def run_to_end(bucket: Bucket, rest: dict[int, list[Line]]) -> tuple[list[Result], list[tuple[int, list[Result]]]]:
    """Let a bucket read the rest of its log and the end; return its results and result files."""
    results, spans = [], []
    for close in (False, True):
        pieces = [] if close else [bucket.accept_records(at, decoded_range(lines)) for at, lines in rest.items() if lines]
        for (released,) in [*pieces, bucket.end() if close else bucket.settle(), *_rest_of(bucket)]:
            results += list(zip(released.system_us.tolist(), released.key.tolist(), released.value.tolist(), strict=True))
        spans += [(start_us, sorted(rows)) for start_us, rows in bucket.pop_sheets()]
    return results, spans


def _rest_of(bucket: Bucket) -> Iterator[list[Released]]:
    """Yield what a bucket gives until it has settled."""
    while not bucket.is_settled:
        yield bucket.settle()


def saved_halfway(topic: Topic, plan: Plan, share: float) -> Saved:
    """Take a bucket through a *share* of each partition's log in three batches, save it, and let another finish the rest."""
    logs = {at: topic.partitions[at] for at in (range(plan.partitions) if plan.partition is None else [plan.partition])}
    if plan.start_us is not None:
        logs = {at: middle_of(lines, plan.start_us - plan.question.size_us, 2) for at, lines in logs.items()}
    bucket, chunks, head = plan.bucket(), dict[int, bytes](), b""
    halves = {at: int(len(lines) * share) for at, lines in logs.items()}
    for piece in range(3):
        for at, until in halves.items():
            lines = logs[at][until * piece // 3 : until * (piece + 1) // 3]
            if lines:
                bucket.accept_records(at, decoded_range(lines))
        bucket.settle()
        list(_rest_of(bucket))
        bucket.next_ctis()
        bucket.pop_sheets()
        changes = bucket.save()
        head = changes.head
        chunks = {number: octets for number, octets in {**chunks, **changes.put}.items() if number not in changes.delete}
    rest = {at: lines[halves[at] :] for at, lines in logs.items()}
    bucket = plan.bucket()
    bucket.restore(head, chunks)
    return Saved(plan, head, chunks, rest, *run_to_end(bucket, rest))


@contextmanager
def merging_everything(fanout: int = 2, merged_rows: int = BUDGET.rows, bytes_max: int = BUDGET.bytes) -> Iterator[None]:
    """Merge, pack, compact and portion rows however few they are, or have few bytes, where otherwise only many are worth the work."""
    with (
        patch.multiple(retention, FANOUT=fanout, PACKED_FROM=0),
        patch.multiple(compacting, COMPACTED_FROM=0, SAVING=0),
        patch.multiple(gathering, INDEXED_FROM=0, BLOCK_ROWS=4),
        budget_of(merged_rows=merged_rows, merged_bytes=bytes_max, evaluated_bytes=bytes_max, bytes=bytes_max, gathered_rows=5, rows=3),
    ):
        yield


def drawn_topic(seed: int, over: bool) -> Topic:
    """Return an ordered topic of two input partitions with disorder, by writers that crash."""
    dice = random.Random(seed)
    keys = (b"", b"a", b"b", b"c", b"\x00\xff", b"a longer key")
    raws = []
    for _ in range(2):
        arrival_us, raw = 10**6, []
        for offset in range(90):
            arrival_us += dice.choice((0, 1, 1, 2, 5))
            raw.append(Record(offset, arrival_us, arrival_us - dice.randrange(-3, 12), dice.choice(keys)))
        raws.append(raw)
    return topic_of(seed, raws, Policies(early_us=None, late_us=9, reorder_us=4), over, 2, False)


def main(folder: Path) -> None:
    """Write one file for each kind of bucket and start."""
    windows = {over: Question(over, 9, 4) for over in (False, True)}
    middle_us = 10**6 + 20
    slowly = SlowPace(4, 11, 2)
    plans = {
        "over": (Plan(windows[True], 0, 2, None, slowly), 0.6),
        "over_middle": (Plan(windows[True], 1, 2, middle_us), 0.2),
        "merged": (Plan(windows[False], None, 2, None, slowly), 0.6),
        "merged_middle": (Plan(windows[False], None, 2, middle_us), 0.3),
        "passed_on": (Plan(Question(True), 0, 2), 0.5),
        "over_compacted": (Plan(Question(True, 9, 3), 0, 2), 0.6),
        "merged_compacted": (Plan(Question(False, 9, 3), None, 2), 0.6),
        "over_shifted": (Plan(windows[True], 0, 2, None, slowly, shift_us=5), 0.6),
        "merged_shifted": (Plan(windows[False], None, 2, None, slowly, shift_us=5), 0.6),
    }
    for name, (plan, share) in plans.items():
        with merging_everything():
            saved = saved_halfway(drawn_topic(7, plan.question.over), plan, share)
        text = json.dumps(saved.to_json(), separators=(",", ":"), ensure_ascii=False)
        (folder / f"v{saved.version}.{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
