"""
Reference data that comes while a job runs: in time it counts as if it had been there from the beginning, too late from where the
job stands; and a batch that is run again finds what it found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bucket_oracle import Event
from support.bucket_topics import Line, decoded_range

from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.ticks import INFINITY, NEVER
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from query.buckets.substreams import SubstreamBucket
from query.engine.program import Program
from query.reference.forgetting import drop_past_versions
from query.reference.lookup import LATE, KnownReferences, ReferenceLookup
from query.reference.tables import ReferenceTable, Version
from query.reference.watch import ReferenceVersion, TakenVersions
from query.sql.bind import bind_outputs
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.syntax.parse import parse_script

TABLE = InputSchema("r", is_reference=True)
SQL = "SELECT a.v AS v, r.n AS n FROM a TIMESTAMP BY t{} LEFT JOIN r ON r.k = 1"


def version(effective_us: int) -> Version:
    """A version whose one record says when it would begin."""
    return Version(effective_us, pa.array([json.dumps({"k": 1, "n": effective_us}).encode()], pa.binary()))


def table(*effective_us: int) -> ReferenceTable:
    """A table of such versions."""
    return ReferenceTable(TABLE, tuple(map(version, sorted(effective_us))))


@pytest.mark.parametrize(
    ("since_us", "begins"),
    [
        ({}, [(NEVER, NEVER), (10, 10), (20, 20)]),
        ({10: 15}, [(NEVER, NEVER), (15, 10), (20, 20)]),
        ({10: 20}, [(NEVER, NEVER), (20, 20)]),
        ({10: 99}, [(NEVER, NEVER), (20, 20)]),
        ({10: 50, 20: 50}, [(NEVER, NEVER), (50, 20)]),
        ({20: 30}, [(NEVER, NEVER), (10, 10), (30, 20)]),
    ],
)
def test_a_late_version_counts_until_the_next_one_does(since_us: dict[int, int], begins: list[tuple[int, int]]) -> None:
    """From (when it counts, when it would have begun); one that is preceded by its successor counts nowhere."""
    delayed = table(NEVER, 10, 20).with_delays(since_us)
    assert [(each.effective_us, json.loads(each.values[0].as_py())["n"]) for each in delayed.versions] == begins


@pytest.mark.parametrize(("effective_us", "late"), [(19, 1), (20, 0)])
def test_a_version_is_late_if_something_from_its_instant_on_is_finished(effective_us: int, late: int) -> None:
    """Finished is what lies below: a version from that instant on is in time, and nobody is warned."""
    assert ReferenceLookup(finished_us=20).accept_versions(KnownReferences([("r", effective_us)], {"r": table(10)})) == late


@dataclass(frozen=True)
class Batch:
    """What a batch reads, and which versions were taken up before it."""

    lines: Sequence[Line]
    added: tuple[int, ...]


def bucket_of(over: bool, begun: Sequence[int]) -> Bucket:
    """A bucket over one ordered partition whose run was begun with some versions."""
    script = parse_script(SQL.format(" OVER k" if over else ""))
    plans = bind_outputs(script, [InputSchema("a", "t", "k" if over else None), TABLE], into="out")
    program = Program(plans, references={"r": table(*begun)})
    kind = SubstreamBucket if over else MergedBucket
    return kind(program, BucketConfig([SourceTopic("a", 1, {0: 0})], 0, Roster(1, 1, Spread.ONE, over)))


def run(
    over: bool, begun: Sequence[int], batches: Sequence[Batch], *, again: random.Random | None = None, forgets: bool = False
) -> tuple[list[bytes], int]:
    """
    Run batches, saved and restored between them; return the results and how many versions were late.

    Args:
        over: Whether the query has OVER.
        begun: The versions with which the run is begun.
        batches: What each batch reads, and takes up before.
        again: Draws batches that are run twice.
        forgets: Whether versions are left out that are not asked for, by what the bucket has told before each batch.
    """
    bucket, results, head, chunks, known = bucket_of(over, begun), list[bytes](), b"", dict[int, bytes](), list[int]()
    kept_from: dict[str, int] = {}
    for batch in batches:
        known += batch.added
        for _ in range(2 if again is not None and again.random() < 0.5 else 1):
            bucket = bucket_of(over, begun)
            if head:
                bucket.restore(head, dict(chunks))
            if known:
                kept = [each for each in (*begun, *known) if each >= kept_from.get("r", NEVER)]
                bucket.update_references(KnownReferences([("r", each) for each in known], {"r": table(*kept)}))
            found = [*bucket.accept_records(0, decoded_range(batch.lines)), *bucket.settle()]
            rows = [value for released in found for value in released.value.tolist()]
        results += rows
        if forgets:
            versions = tuple(ReferenceVersion("r", each, "", 0, "") for each in (*begun, *known))
            kept_from = dict(drop_past_versions(TakenVersions(Path(), versions, len(begun), kept_from), *bucket.looks_up_from).kept_from)
        changes = bucket.save()
        head = changes.head
        chunks = {number: octets for number, octets in {**chunks, **changes.put}.items() if number not in changes.delete}
    return results, bucket.totals.get(LATE, 0)


@st.composite
def logs(draw: st.DrawFn) -> list[Line]:
    """Draw an ordered partition of one channel: events in order, CTIs between them, the final one last."""
    lines: list[Line] = []
    times = sorted(draw(st.lists(st.integers(1, 60), min_size=1, max_size=12)))
    for seq, system_us in enumerate(times):
        key = draw(st.sampled_from("ab"))
        payload = json.dumps({"v": seq, "t": system_us, "k": key}).encode()
        lines.append((len(lines), Event(0, seq, system_us, seq, key.encode(), payload)))
        if draw(st.booleans()):
            lines.append((len(lines), _cti(draw(st.integers(times[max(seq - 1, 0)], system_us)), seq + 1)))
    return [*lines, (len(lines), _cti(INFINITY, len(times)))]


def _cti(c: int, n: int) -> Cti:
    return Cti(0, 0, c, n, 0, 0, 0, c, Roster(1, 1, Spread.ONE, False), Cause.EVENT)


def cut(draw: st.DrawFn, lines: Sequence[Line], versions: Sequence[int]) -> list[Batch]:
    """Draw where batches end, and before which of them each version is taken up."""
    ends = sorted(draw(st.sets(st.integers(1, len(lines)), max_size=4)) | {len(lines)})
    starts = [0, *ends[:-1]]
    turn = {each: draw(st.integers(0, len(ends) - 1)) for each in versions}
    return [
        Batch(lines[start:end], tuple(each for each in versions if turn[each] == number))
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


VERSIONS = st.lists(st.integers(1, 70), unique=True, max_size=4)


def reached(over: bool, batches: Sequence[Batch]) -> list[int]:
    """Return how far anything is finished before each batch: up to the last CTI, with OVER up to the last event where that is further."""
    found = [NEVER]
    for batch in batches:
        records = [record for _, record in batch.lines]
        ctis = [record.c for record in records if isinstance(record, Cti)]
        events = [record.system_us for record in records if isinstance(record, Event)] if over else []
        found.append(max([found[-1], *ctis, *events]))
    return found


@settings(max_examples=60, deadline=None)
@given(st.data(), st.booleans())
def test_a_version_that_comes_while_the_job_runs_counts_as_it_must(data: st.DataObject, over: bool) -> None:
    """Level 2: against a search through all versions, one event at a time; batches that are run again give the same."""
    lines, versions = data.draw(logs()), data.draw(VERSIONS)
    begun = versions[: data.draw(st.integers(0, 1))]
    batches = cut(data.draw, lines, [each for each in versions if each not in begun])
    begins = {each: each for each in begun}
    late = 0
    for finished_us, batch in zip(reached(over, batches), batches, strict=False):
        for each in batch.added:
            begins[each] = max(each, finished_us)
            late += each < finished_us
    expected = []
    for _, record in lines:
        if isinstance(record, Event):
            valid = [each for each, since_us in begins.items() if since_us <= record.system_us]
            expected.append({"v": record.seq, "n": max(valid, default=None)})
    results, told = run(over, begun, batches, again=random.Random(data.draw(st.integers(0, 99))), forgets=data.draw(st.booleans()))
    assert sorted(map(json.loads, results), key=lambda row: row["v"]) == expected
    assert told == late


@settings(max_examples=30, deadline=None)
@given(st.data(), st.booleans())
def test_in_time_it_makes_no_difference_when_it_came(data: st.DataObject, over: bool) -> None:
    """Level 3: the bytes are those of a run that had every version from the beginning."""
    lines, versions = data.draw(logs()), data.draw(VERSIONS)
    batches = cut(data.draw, lines, versions)
    in_time = [
        Batch(batch.lines, tuple(each for each in batch.added if each >= finished_us))
        for finished_us, batch in zip(reached(over, batches), batches, strict=False)
    ]
    known = [each for batch in in_time for each in batch.added]
    from_the_beginning = [Batch(batch.lines, ()) for batch in in_time]
    assert run(over, [], in_time) == run(over, known, from_the_beginning)
    assert run(over, [], in_time)[1] == 0
