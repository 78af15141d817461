"""
The verification of a query's outputs as a stage of a larger one, and what is said of it as JSON and as text.

Law: a stage is equal if its rows, files and tables are the computed ones, in topics in the same order and with the same numbers, and no
promise of a CTI is broken. Its notes say what was not checked.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ordering.ticks import NEVER, format_tick
from query.start.recount import Recount
from query.verify.file_rows import FilesCheck
from query.verify.rows import ResultRow, RowDifference
from query.verify.runs import RunPart
from query.verify.table_rows import TableCheck
from query.verify.topic_rows import TopicPartition
from tidegate.ordered_topic.compare.promises import BrokenPromise
from tidegate.ordered_topic.compare.sides import describe_since
from tidegate.ordered_topic.compare.strange_records import strange_dict, strange_lines

# A row as text is cut to so many characters.
_SHOWN = 400
# Most differences of one partition, or of one table, as text.
_DIFFERENCES_SHOWN = 3


@dataclass
class VerifiedQuery:
    """The verification of the outputs of one query, whose results are those of one run after the other."""

    name: str
    parts: Sequence[RunPart]
    since_us: int | None
    until_us: int | None
    # By the number of the output.
    topics: Mapping[int, list[TopicPartition]]
    files: Mapping[int, FilesCheck]
    tables: Mapping[int, list[TableCheck]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_out: int = 0
    # The instant from which on the rows follow from the raw topics, microseconds; None: not known, NEVER: all do.
    vouched_from_us: int | None = NEVER

    @property
    def recount(self) -> Recount:
        """That of the last run."""
        return self.parts[-1].recount

    def part_of(self, output: int, difference: RowDifference) -> RunPart:
        """Return the run that has written a row of a topic or table, or should have; *output* is its number."""
        seq = max(row.seq for row in (difference.stands, difference.should) if row is not None)
        limits = [part.limit(output, difference.partition) for part in self.parts]
        return next((part for part, limit in zip(self.parts, limits, strict=True) if limit is None or seq < limit), self.parts[-1])

    @property
    def is_equal(self) -> bool:
        channels = [channel for channels in self.topics.values() for channel in channels]
        checks: list[FilesCheck | TableCheck] = [*self.files.values(), *(table for tables in self.tables.values() for table in tables)]
        is_as_computed = not any(channel.difference or channel.summary.broken for channel in channels)
        has_strange_records = any(channel.summary.has_strange_records for channel in channels)
        return is_as_computed and not has_strange_records and not any(check.differences for check in checks)

    def as_dict(self) -> dict[str, Any]:
        """Return what was found, for ``--format json``."""
        return _query_dict(self)

    def as_lines(self) -> Iterator[str]:
        """Yield what was found as lines of text."""
        return _query_lines(self)


def _query_dict(stage: VerifiedQuery) -> dict[str, Any]:
    plan = stage.recount.plan
    return {
        "kind": "results",
        "name": stage.name,
        "reads": [feed.topic for feed in plan.feeds],
        "topic_ids": stage.recount.topics.topic_ids,
        "start": stage.recount.start.text,
        "since": None if stage.since_us is None else format_tick(stage.since_us),
        "vouched_from": describe_since(stage.vouched_from_us),
        "runs": [_run_dict(stage, index) for index in range(len(stage.parts))],
        "settings": query_settings(stage),
        "published": [
            *(_topic_dict(stage, *item) for item in stage.topics.items()),
            *map(_files_dict, stage.files.values()),
            *map(_table_dict, _tables(stage)),
        ],
        "left_out": stage.left_out,
        "notes": stage.notes,
        "differences": [_row_difference_dict(difference) for difference in row_differences(stage)],
        "broken": [promise.as_dict(topic) for topic, promise in broken_promises(stage)],
    }


def _run_dict(stage: VerifiedQuery, index: int) -> dict[str, Any]:
    """Return from when on results are of one of the runs that wrote them, and how many of its rows are equal, by topic."""
    rows: dict[str, int] = {}
    for channels in stage.topics.values():
        for channel in channels:
            ends = [*channel.begun[1:], channel.digest.count]
            rows[channel.side.topic] = rows.get(channel.side.topic, 0) + ends[index] - channel.begun[index]
    part = stage.parts[index]
    return {"from": describe_since(part.own_from_us), "reads": [feed.topic for feed in part.recount.plan.feeds], "rows": rows}


def query_settings(stage: VerifiedQuery) -> dict[str, str]:
    """Return the settings that decide the results of a query."""
    plan = stage.recount.plan
    return {"plan": "\n".join(each.explain() for each in plan.plans), "pace": str(plan.outputs[0].pace()), "buckets": str(plan.buckets)}


def _topic_dict(stage: VerifiedQuery, output: int, channels: list[TopicPartition]) -> dict[str, Any]:
    digests = {channel.partition: (channel.digest.count, channel.digest.sha256) for channel in channels}
    least = [channel.digest.least_us for channel in channels if channel.digest.least_us is not None]
    largest = [channel.digest.largest_us for channel in channels if channel.digest.largest_us is not None]
    return {
        "kind": "topic",
        "name": stage.recount.plan.outputs[output].topic,
        "rows": sum(count for count, _ in digests.values()),
        "ahead": sum(channel.ahead for channel in channels),
        "duplicates": sum(channel.summary.duplicates + channel.summary.torn for channel in channels),
        **strange_dict([channel.summary for channel in channels]),
        "from": format_tick(min(least)) if least else None,
        "until": format_tick(max(largest)) if largest else None,
        **_digest_dict(digests),
    }


def _files_dict(files: FilesCheck) -> dict[str, Any]:
    fields = _digest_dict({number: (partition.rows, partition.digest.sha256) for number, partition in files.partitions.items()})
    for entry in fields["partitions"]:
        digest = files.partitions[entry["partition"]].digest
        entry |= {"files": digest.files, "first": digest.first}
    return {
        "kind": "files",
        "name": files.folder,
        "rows": files.rows,
        "files": sum(partition.digest.files for partition in files.partitions.values()),
        "ahead": files.ahead,
        "other_bytes": files.rewritten,
        **fields,
    }


def _tables(stage: VerifiedQuery) -> list[TableCheck]:
    return [table for tables in stage.tables.values() for table in tables]


def _table_dict(table: TableCheck) -> dict[str, Any]:
    return {
        "kind": table.kind,
        "name": table.name,
        "rows": table.count,
        "differing": table.differing,
        "ahead": table.ahead,
        "can_be_attested": table.can_be_attested,
        "partitions": [{"partition": partition, "below": below} for partition, below in sorted(table.below.items())],
        "sha256": table.sha256.hex(),
    }


def _digest_dict(digests: Mapping[int, tuple[int, bytes]]) -> dict[str, Any]:
    partitions = [{"partition": number, "rows": rows, "sha256": sha256.hex()} for number, (rows, sha256) in sorted(digests.items())]
    return {"partitions": partitions, "sha256": total_sha256(digests)}


def row_differences(stage: VerifiedQuery) -> list[RowDifference]:
    """Return the differences of a query's results: those of topics, then those of files, then those of tables."""
    of_topics = [channel.difference for channels in stage.topics.values() for channel in channels if channel.difference is not None]
    checks: list[FilesCheck | TableCheck] = [*stage.files.values(), *_tables(stage)]
    return [*of_topics, *(difference for check in checks for difference in check.differences)]


def broken_promises(stage: VerifiedQuery) -> list[tuple[str, BrokenPromise]]:
    """Return the promises of CTIs that do not hold, each with its topic."""
    return [
        (channel.side.topic, promise) for channels in stage.topics.values() for channel in channels for promise in channel.summary.broken
    ]


def _row_difference_dict(difference: RowDifference) -> dict[str, Any]:
    return {
        "where": difference.where,
        "partition": difference.partition,
        "equal_before": difference.index,
        "kind": difference.kind,
        "found": _row_dict(difference.stands),
        "expected": _row_dict(difference.should),
        "text": difference.text,
    }


def _row_dict(row: ResultRow | None) -> dict[str, Any] | None:
    if row is None:
        return None
    texts = {name: None if data is None else data.decode("utf-8", "replace") for name, data in (("key", row.key), ("value", row.value))}
    numbers = {"seq": row.seq, "s": format_tick(row.system_us)} if row.seq >= 0 else {"seq": None, "s": None}
    return {**numbers, **texts, "place": row.place or None}


def _query_lines(stage: VerifiedQuery) -> Iterator[str]:
    reads = ", ".join(feed.topic for feed in stage.recount.plan.feeds)
    for item in stage.topics.items():
        numbers = _topic_dict(stage, *item)
        span = f" from {numbers['from']} to {numbers['until']}" if numbers["rows"] else ""
        yield f"result topic {numbers['name']} from {reads}: {numbers['rows']:,} rows as computed{span}{_ahead(numbers)}"
        yield f"  sha256 {numbers['sha256']}"
    for files in stage.files.values():
        numbers = _files_dict(files)
        other = f"; {numbers['other_bytes']:,} files have the rows, but were written by another pyarrow" if numbers["other_bytes"] else ""
        count = f"{numbers['rows']:,} rows in {numbers['files']:,} files"
        yield f"files in {numbers['name']} from {reads}: {count} as computed{_ahead(numbers)}{other}"
        yield f"  sha256 {numbers['sha256']}"
    for table in _tables(stage):
        found = "as computed" if not table.differing else f"of which {table.differing:,} are not as computed, or are missing"
        yield f"{table.kind} {table.name} from {reads}: {table.count:,} rows {found}{_ahead(_table_dict(table))}"
        yield f"  sha256 {table.sha256.hex()}"
    shown: Counter[tuple[str, int]] = Counter()
    for difference in row_differences(stage):
        shown[difference.where, difference.partition] += 1
        if shown[difference.where, difference.partition] > _DIFFERENCES_SHOWN:
            continue
        place = "" if difference.index < 0 else f", partition {difference.partition}, after {difference.index:,} equal rows"
        yield f"  {difference.where}{place}: {difference.kind}"
        yield from (f"    {line}" for line in _row_lines(difference))
    for (where, partition), times in shown.items():
        if times > _DIFFERENCES_SHOWN:
            place = f", partition {partition}" if partition >= 0 else ""
            yield f"  {where}{place}: {times - _DIFFERENCES_SHOWN:,} more differences (--format json lists {times:,})"
    yield from (
        f"  broken promise at {topic}-{each.partition}@{each.log_offset}: {each.description}" for topic, each in broken_promises(stage)
    )
    yield from (f"  {line}" for line in strange_lines([channel.summary for channels in stage.topics.values() for channel in channels]))


def _ahead(numbers: Mapping[str, Any]) -> str:
    what = "sheets" if numbers["kind"] == "files" else "rows"
    return f"; {numbers['ahead']:,} more {what} are still to be written" if numbers["ahead"] else ""


def _row_lines(difference: RowDifference) -> Iterator[str]:
    if difference.text:
        yield difference.text
    for label, row in (("found", difference.stands), ("expected", difference.should)):
        if row is not None or not difference.text:
            yield f"{label}: {'nothing' if row is None else _row_text(row)}"


def _row_text(row: ResultRow) -> str:
    place = f" at {row.place}" if row.place else ""
    value = "null" if row.value is None else row.value.decode("utf-8", "replace")
    if row.seq < 0:
        return value[:_SHOWN]
    key = f", key {row.key.decode('utf-8', 'replace')}" if row.key else ""
    return f"row {row.seq} ({format_tick(row.system_us)}{key}){place}: {value[:_SHOWN]}"


def total_sha256(partitions: Mapping[int, tuple[int, bytes]]) -> str:
    """Return the digest over the number, row count and digest of each partition."""
    digest = hashlib.sha256()
    for partition, (rows, sha256) in sorted(partitions.items()):
        digest.update(partition.to_bytes(4, "little") + rows.to_bytes(8, "little") + sha256)
    return digest.hexdigest()
