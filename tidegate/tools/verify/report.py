"""The result of a verification as JSON and as text."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from ordering.ticks import NEVER, format_tick
from tidegate.tools.compare.difference import Difference, Event, format_field
from tidegate.tools.compare.promises import BrokenPromise
from tidegate.tools.compare.strange_records import strange_dict, strange_lines
from tidegate.tools.verify.file_rows import FilesCheck
from tidegate.tools.verify.rows import Row, RowDifference
from tidegate.tools.verify.stages import OrderedStage, QueryStage, Stage
from tidegate.tools.verify.table_rows import TableCheck
from tidegate.tools.verify.topic_rows import TopicPartition

# A row or event as text is cut to so many characters.
_SHOWN = 400
# Most differences of one partition, or of one table, as text.
_DIFFERENCES_SHOWN = 3


def total_sha256(partitions: Mapping[int, tuple[int, bytes]]) -> str:
    """Return the digest over the number, row count and digest of each partition."""
    digest = hashlib.sha256()
    for partition, (rows, sha256) in sorted(partitions.items()):
        digest.update(partition.to_bytes(4, "little") + rows.to_bytes(8, "little") + sha256)
    return digest.hexdigest()


def as_dict(target: str, stages: Sequence[Stage], explanations: Mapping[int, list[str]]) -> dict[str, Any]:
    """Return the result for ``--format json``; *explanations*: lines for each stage, by the stage's index."""
    return {
        "equal": all(stage.is_equal for stage in stages),
        "target": target,
        "stages": [
            {**(_ordered_dict(stage) if isinstance(stage, OrderedStage) else _query_dict(stage)), "because": explanations.get(index, [])}
            for index, stage in enumerate(stages)
        ],
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Return the versions of the programs that computed the results."""
    return {"tidegate": version("tidegate"), "pyarrow": pa.__version__, "duckdb": version("duckdb")}


def _ordered_dict(stage: OrderedStage) -> dict[str, Any]:
    check = stage.check
    fields: dict[str, Any] = {
        "kind": "ordered topic",
        "name": stage.name,
        "topic": stage.topic,
        "topic_id": stage.replay.ordered.topic_id,
        "vouched_from": _instant(stage.vouched_from_us),
        "settings": dict(stage.replay.fingerprint),
        "notes": stage.notes,
    }
    if check is None:
        return {**fields, "checked": False, "differences": [], "broken": []}
    return {
        **fields,
        "checked": True,
        "events": check.events,
        "ahead": check.ahead,
        "duplicates": check.duplicates,
        **strange_dict(check.summaries),
        "unusable": dict(sorted(check.unusable.items())),
        "until": None if check.largest_us == NEVER else format_tick(check.largest_us),
        "differences": [_event_difference_dict(stage, difference) for difference in check.differences],
        "broken": [promise.as_dict(stage.topic) for promise in check.broken],
    }


def _instant(us: int | None) -> str | None:
    return None if us is None else "the beginning" if us == NEVER else format_tick(us)


def _event_difference_dict(stage: OrderedStage, difference: Difference) -> dict[str, Any]:
    def raw(number: int, offset: int) -> str:
        return raw_place(stage, number, offset)

    fields = difference.as_dict(raw)
    return {
        "partition": difference.partition,
        "channel": difference.number,
        "equal_before": difference.index,
        "kind": _event_kind(difference),
        "fields": fields["fields"],
        "found": fields["a"],
        "expected": fields["b"],
    }


def _event_kind(difference: Difference) -> str:
    kinds = {"missing in A": "missing", "missing in B": "extra", "swapped": "moved", "fields": "changed"}
    if difference.kind == "ended":
        return "missing" if difference.a is None else "extra"
    return kinds.get(difference.kind, difference.kind)


def raw_place(stage: OrderedStage, number: int, offset: int) -> str:
    """Return the place of a raw record by the roster number of its partition."""
    partitions = stage.replay.plan.partitions
    if number >= len(partitions):
        return f"input partition {number} @{offset}"
    topic, partition = partitions[number]
    return f"{topic}-{partition}@{stage.replay.plan.settings.places.text(offset)}"


def _query_dict(stage: QueryStage) -> dict[str, Any]:
    plan = stage.recount.plan
    return {
        "kind": "results",
        "name": stage.name,
        "reads": [feed.topic for feed in plan.feeds],
        "topic_ids": stage.recount.topics.topic_ids,
        "start": stage.recount.start.text,
        "since": None if stage.since_us is None else format_tick(stage.since_us),
        "vouched_from": _instant(stage.vouched_from_us),
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


def _run_dict(stage: QueryStage, index: int) -> dict[str, Any]:
    """Return from when on results are of one of the runs that wrote them, and how many of its rows are equal, by topic."""
    rows: dict[str, int] = {}
    for channels in stage.topics.values():
        for channel in channels:
            ends = [*channel.begun[1:], channel.digest.count]
            rows[channel.side.topic] = rows.get(channel.side.topic, 0) + ends[index] - channel.begun[index]
    part = stage.parts[index]
    return {"from": _instant(part.own_from_us), "reads": [feed.topic for feed in part.recount.plan.feeds], "rows": rows}


def query_settings(stage: QueryStage) -> dict[str, str]:
    """Return the settings that decide the results of a query."""
    plan = stage.recount.plan
    return {"plan": "\n".join(each.explain() for each in plan.plans), "pace": str(plan.outputs[0].pace()), "buckets": str(plan.buckets)}


def _topic_dict(stage: QueryStage, output: int, channels: list[TopicPartition]) -> dict[str, Any]:
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


def _tables(stage: QueryStage) -> list[TableCheck]:
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


def row_differences(stage: QueryStage) -> list[RowDifference]:
    """Return the differences of a query's results: those of topics, then those of files, then those of tables."""
    of_topics = [channel.difference for channels in stage.topics.values() for channel in channels if channel.difference is not None]
    checks: list[FilesCheck | TableCheck] = [*stage.files.values(), *_tables(stage)]
    return [*of_topics, *(difference for check in checks for difference in check.differences)]


def broken_promises(stage: QueryStage) -> list[tuple[str, BrokenPromise]]:
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


def _row_dict(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    texts = {
        name: None if octets is None else octets.decode("utf-8", "replace") for name, octets in (("key", row.key), ("value", row.value))
    }
    numbers = {"seq": row.seq, "s": format_tick(row.system_us)} if row.seq >= 0 else {"seq": None, "s": None}
    return {**numbers, **texts, "place": row.place or None}


def as_lines(target: str, stages: Sequence[Stage], explanations: Mapping[int, list[str]]) -> Iterator[str]:
    """Yield the result as lines of text."""
    for index, stage in enumerate(stages):
        yield from _ordered_lines(stage) if isinstance(stage, OrderedStage) else _query_lines(stage)
        yield from (f"  because: {line}" for line in explanations.get(index, []))
        yield from (f"  note: {note}" for note in stage.notes)
    yield _verdict(target, stages)


def _ordered_lines(stage: OrderedStage) -> Iterator[str]:
    check, reads = stage.check, ", ".join(sorted({topic for topic, _ in stage.replay.plan.partitions}))
    if check is None:
        yield f"ordered topic {stage.topic}: not checked"
        return
    until = "" if check.largest_us == NEVER else f" until {format_tick(check.largest_us)}"
    state = "as computed" if check.is_equal else "are as computed, and then they differ"
    ahead = f"; {check.ahead:,} more are due later" if check.ahead else ""
    yield f"ordered topic {stage.topic} from {reads}: {check.events:,} events {state}{until}{ahead}"
    for difference in check.differences:
        yield from _event_lines(stage, difference)
    yield from (f"  broken promise at {stage.topic}-{each.partition}@{each.log_offset}: {each.description}" for each in check.broken)
    yield from (f"  {line}" for line in strange_lines(check.summaries))


def _event_lines(stage: OrderedStage, difference: Difference) -> Iterator[str]:
    names = ", ".join(difference.as_dict(lambda *_: "")["fields"]) if difference.kind == "fields" else ""
    what = f"{_event_kind(difference)}{f' ({names})' if names else ''}"
    yield f"  channel {difference.number} -> partition {difference.partition}, after {difference.index:,} equal events: {what}"
    for label, event, other in (("found", difference.a, difference.b), ("expected", difference.b, difference.a)):
        yield f"    {label}: {'nothing' if event is None else _event_text(stage, difference, event, other)}"


def _event_text(stage: OrderedStage, difference: Difference, event: Event, other: Event | None) -> str:
    place = f" at {stage.topic}-{difference.partition}@{event.log_offset}" if event is difference.a else ""
    shown = difference.names if difference.kind == "fields" else ("system_us", "value")
    values = [f"{name} = {format_field(name, event.fields[name], None if other is None else other.fields[name])}" for name in shown]
    return f"raw record {raw_place(stage, difference.number, event.origin)}{place}: {'; '.join(values)}"


def _query_lines(stage: QueryStage) -> Iterator[str]:
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


def _row_text(row: Row) -> str:
    place = f" at {row.place}" if row.place else ""
    value = "null" if row.value is None else row.value.decode("utf-8", "replace")
    if row.seq < 0:
        return value[:_SHOWN]
    key = f", key {row.key.decode('utf-8', 'replace')}" if row.key else ""
    return f"row {row.seq} ({format_tick(row.system_us)}{key}){place}: {value[:_SHOWN]}"


def _verdict(target: str, stages: Sequence[Stage]) -> str:
    differing = [stage.name for stage in stages if not stage.is_equal]
    if differing:
        return f"different: {', '.join(differing)}"
    last = stages[-1]
    if last.vouched_from_us is None:
        return f"equal, as far as it can be checked: {target} follows from its input, which cannot be vouched for"
    if last.vouched_from_us > (NEVER if last.since_us is None else last.since_us):
        since = format_tick(last.vouched_from_us)
        return f"equal: {target} follows byte for byte, from {since} on from the raw topics, before that from its unverified input"
    since = "" if last.since_us is None else f", from {format_tick(last.since_us)} on"
    return f"equal: {target} follows from the raw topics{since}, byte for byte"


def make_statement(verification: Mapping[str, Any], since_us: int | None, until_us: int | None, at_us: int) -> dict[str, Any]:
    """Return the statement of an attestation for a verification that found no difference; *verification* is the dict of :func:`as_dict`."""
    target = verification["stages"][-1]
    stage_fields = ("kind", "name", "topic", "topic_id", "topic_ids", "reads", "start", "events", "settings", "vouched_from", "notes")
    stages = [{name: stage[name] for name in stage_fields if name in stage} for stage in verification["stages"]]
    published_fields = ("kind", "name", "rows", "from", "until", "partitions", "sha256")
    return {
        "target": verification["target"],
        "at": format_tick(at_us),
        "since": None if since_us is None else format_tick(since_us),
        "until": None if until_us is None else format_tick(until_us),
        "published": [
            {name: published[name] for name in published_fields if name in published}
            for published in target.get("published", [])
            if published["kind"] in ("topic", "files") or published["can_be_attested"]
        ],
        "stages": stages,
        "versions": verification["versions"],
    }
