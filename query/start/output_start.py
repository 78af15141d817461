"""
Output start times of queries: from which instant on a run writes results, and what an earlier run has promised (docs/operate/starting.md).

Law: a run with an output start writes the results at or above it of a run from the beginning, numbered from 0, in the same order (with OVER
over several inputs: of each key). A run that resumes without its checkpoint (``--start last-stopped``) writes what follows the last CTI of
each result channel, numbered on, as if it had never stopped. With OVER over several inputs, or with a pace that counts events, the order
between substreams may differ from there on (:mod:`query.start.resumed_results`). If the query was changed meanwhile, the results after that
CTI are the new query's, but for those that stand there already: each takes the place of the next result of its substream. A run keeps its
start: the same start, no ``--start`` or ``last-stopped`` continues it; any other is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path

from ordering.errors import RefusedError
from ordering.protocol.facts import SPLIT, decode_facts
from ordering.ticks import TICK_MIN
from query.config import LogStart, Promise
from query.start.resumed_results import read_promise_by_substream
from tidegate.ordered_topic.decode import decode_ctis
from tidegate.ordered_topic.promises import last_promises
from tidegate.ordered_topic.tails import read_tails
from tidegate.platform.checkpoint.binding import replace_text
from tidegate.platform.checkpoint.damage import read_json
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.settings.tables.outputs import OutputSettings

# In the checkpoint's folder: the promises of the channels when the run began.
PROMISES_FILE = "resumed.json"
# There too: where a run with OVER began to read its logs.
LOG_STARTS_FILE = "log_starts.json"
ELSEWHERE = "write INTO an output that is not there yet"

# For each output the promise of each bucket that has one.
Promises = tuple[Mapping[int, Promise], ...]


def start_binding(start: Start) -> dict[str, str]:
    """Return the fields by which a checkpoint is bound to its start."""
    return {"start": start.text, "start_us": "" if start.start_us is None else str(start.start_us)}


def bound_start(binding: Mapping[str, str]) -> Start:
    """Return the start to which a checkpoint is bound."""
    return Start(binding["start"], int(binding["start_us"]) if binding["start_us"] else None)


def write_promises(folder: Path, promises: Promises) -> None:
    """Write the channels' promises at the beginning of a run to its checkpoint's folder."""
    if not any(promises):
        (folder / PROMISES_FILE).unlink(missing_ok=True)
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fields = [{str(bucket): promise.save() for bucket, promise in by_bucket.items()} for by_bucket in promises]
    replace_text(folder / PROMISES_FILE, json.dumps(fields))


def read_promises(folder: Path, outputs: int) -> Promises:
    """Return the promises in a checkpoint's folder; empty ones if nothing was written."""
    fields = read_json(folder / PROMISES_FILE)
    if fields is None:
        return tuple({} for _ in range(outputs))
    return tuple({int(bucket): Promise.restore(promise) for bucket, promise in by_bucket.items()} for by_bucket in fields)


def write_log_starts(folder: Path, starts: Mapping[int, LogStart]) -> None:
    """Write where logs are read from, at the beginning of a run, to its checkpoint's folder: readers of later batches need the same."""
    if starts:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_text(folder / LOG_STARTS_FILE, json.dumps(starts))
    else:
        (folder / LOG_STARTS_FILE).unlink(missing_ok=True)


def read_log_starts(folder: Path) -> dict[int, LogStart]:
    """Return where logs are read from, as a run has begun; nothing if nothing was written."""
    return {int(log): LogStart(*start) for log, start in (read_json(folder / LOG_STARTS_FILE) or {}).items()}


def read_result_promises(kafka: Mapping[str, str], admin: Admin, output: OutputSettings, *, by_substream: bool) -> dict[int, Promise]:
    """
    Return the last promise of each channel of a result topic, by bucket, with the results after it: they have numbers, and readers accept
    them, whatever another query would give in their place. RefusedError if the topic has ended or grown. *by_substream*: the order of
    results between substreams depends on where a run begins, so it is refused too if results that must be counted were deleted.
    """
    if output.topic is None or (topic := admin.find(output.topic)) is None:
        return {}
    partitions = topic.all_partitions
    ends = admin.ends(partitions)
    if not any(ends.values()):
        return {}
    promises_by_number = last_promises(kafka, admin.starts(partitions), ends, ELSEWHERE)
    _check_channels(topic, {cti.roster.inputs for channels in promises_by_number.values() for cti in channels.values()})
    promises = {
        number: Promise(cti.c, cti.n, cti.ahead, cti.largest_us)
        for number, channels in promises_by_number.items()
        for cti in channels.values()
    }
    with_results = {}
    for number in [number for (_, number), end in ends.items() if end] if by_substream else promises:
        # A run that was lost before its first CTI may have written results all the same.
        promise, place = promises.get(number, Promise(TICK_MIN, 0, 0, TICK_MIN)), (topic.name, number)
        first = admin.offsets_from([place], promise.c)[place]
        try:
            with_results[number] = read_promise_by_substream(kafka, *place, first, ends[place], promise)
        except RefusedError:
            if by_substream:
                raise
            # The same query writes the same results again.
            with_results[number] = promise
    return with_results


def read_split(kafka: Mapping[str, str], admin: Admin, topic: Topic) -> int | None:
    """Return how the results of a topic are split, as its last CTI with that fact says; None if none says it."""
    partitions = topic.all_partitions
    starts, ends = admin.starts(partitions), admin.ends(partitions)
    for (name, number), end in ends.items():
        with closing(read_tails(kafka, name, number, starts[name, number], end)) as tails:
            for tail in tails:
                facts = (found.facts for records in tail.records for found in decode_ctis(records, name, number) if found.facts is not None)
                splits = [fact.value for header in facts for fact in decode_facts(header, name) if fact.kind == SPLIT]
                if splits:
                    return splits[-1]
    return None


def _check_channels(topic: Topic, written: Collection[int]) -> None:
    """Refuse a result topic to which partitions were added: keys would have moved."""
    other_counts = [count for count in written if count != topic.partitions]
    if other_counts:
        what = f"result topic {topic.name} has {topic.partitions} partitions, and its results were written into {max(other_counts)}"
        fix = f"{ELSEWHERE}: a result topic keeps the number of partitions that it was made with, since keys would move"
        raise RefusedError(what, code="TG-TOPIC-PARTITIONS", where=topic.name, fix=fix)
