"""
Where a query job begins: at an output start time, or where a run before it has stopped (spec section 6).

Law: a run with output start S writes the results with s >= S of a run from the beginning, in the same order (with OVER that of each
key), numbered from 0. A run that goes on without its checkpoint (``--start last-stopped``) writes what follows the last CTI of
each result channel, numbered on, as if it had never stopped (with OVER over several inputs the order between keys may be another
from there on, see :mod:`query.buckets.resumed_results`); where the query was changed meanwhile, the results before that CTI are the old
query's, those after it the new one's.

The run is bound to its start: whoever asks for the same again, for nothing or for ``last-stopped`` goes on with the run.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ordering.errors import RefusedError
from ordering.ticks import TICK_MIN, format_tick
from query.buckets.resumed_results import read_promise_by_key
from query.config import Promise
from tidegate.checkpoint.binding import read_binding, replace_text
from tidegate.checkpoint.output_start import BEGINNING, LAST_STOPPED, Start, continues_run, read_last_stop
from tidegate.kafka.admin import Admin, Topic
from tidegate.kafka.channel_promises import last_promises
from tidegate.settings.tables.outputs import OutputSettings
from tidegate.settings.tables.redis import RedisSettings

FILE = "resumed.json"
"""In the checkpoint's folder: what the channels had promised when it was begun."""
ELSEWHERE = "write INTO an output that is not there yet"
Promises = tuple[Mapping[int, Promise], ...]
"""For each output the promise of each bucket that has one."""


@dataclass(frozen=True, slots=True)
class ResolvedStart:
    """How a run began: its output start, and what the channels had promised before."""

    start: Start
    promises: Promises


def resolve_output_start(
    requested: Start | None,
    folder: Path,
    outputs: Sequence[OutputSettings],
    kafka: Mapping[str, str],
    redis: RedisSettings,
    *,
    by_key: bool = False,
) -> ResolvedStart:
    """
    Return how a job begins, or has begun; nothing is written.

    Args:
        asked: What ``--start`` says, None if nothing.
        folder: The checkpoint's folder.
        outputs: Where the results go.
        kafka: librdkafka properties.
        redis: Where runs before have told how far they were.
        by_key: Whether the order of results between keys depends on where a run begins.

    Raises:
        RefusedError: The run began in another way (TG-START-BOUND), nobody knows where it stopped, or a result topic has ended.
    """
    binding = read_binding(folder)
    if binding is not None:
        start = _bound_start(binding)
        if not continues_run(requested, start):
            assert requested is not None, "no wish goes on"
            raise RefusedError(
                f"the run into {outputs[0].name} was begun with --start {start.text}; "
                f"--start {requested.text} would leave a hole in it or repeat what is written",
                code="TG-START-BOUND",
                where=str(folder),
                fix="leave --start out (or --start last-stopped) to go on; to begin anew write INTO an output that is not there yet, "
                "or delete the result topic and the checkpoint folder",
                example="--start last-stopped",
            )
        return ResolvedStart(start, _read_promises(folder, len(outputs)))
    if requested is None or requested.text != LAST_STOPPED:
        return ResolvedStart(requested or BEGINNING, tuple({} for _ in outputs))
    promises = tuple(_read_result_promises(kafka, output, by_key=by_key) for output in outputs)
    start = Start(LAST_STOPPED) if any(promises) else read_last_stop(redis, outputs[0].topic or outputs[0].name)
    return ResolvedStart(start, promises)


def write_promises(folder: Path, resolved: ResolvedStart) -> None:
    """Write down what the channels had promised when a run begins; a run that goes on has done so."""
    if read_binding(folder) is not None:
        return
    if any(resolved.promises):
        _write_promises(folder, resolved.promises)
    else:
        (folder / FILE).unlink(missing_ok=True)


def _bound_start(binding: Mapping[str, str]) -> Start:
    start_us = int(binding["start"]) if binding["start"] else None
    said = binding.get("start_said", BEGINNING.text if start_us is None else format_tick(start_us))
    return Start(said, start_us)


def start_binding(start: Start) -> dict[str, str]:
    """Return what a checkpoint remembers of its start."""
    plain = BEGINNING.text if start.start_us is None else format_tick(start.start_us)
    fields = {} if start.text == plain else {"start_said": start.text}
    return {"start": "" if start.start_us is None else str(start.start_us), **fields}


def _read_result_promises(kafka: Mapping[str, str], output: OutputSettings, *, by_key: bool) -> dict[int, Promise]:
    admin = Admin(kafka)
    if output.topic is None or (topic := admin.find(output.topic)) is None:
        return {}
    partitions = [(topic.name, number) for number in range(topic.partitions)]
    ends = admin.ends(partitions)
    if not any(ends.values()):
        return {}
    promises_by_number = last_promises(kafka, topic.name, admin.starts(partitions), ends, ELSEWHERE)
    _check_channels(topic, {cti.roster.inputs for channels in promises_by_number.values() for cti in channels.values()})
    promises = {
        number: Promise(cti.c, cti.n, cti.ahead, cti.largest_us)
        for number, channels in promises_by_number.items()
        for cti in channels.values()
    }
    if not by_key:
        return promises
    promises_by_key = {}
    for number in (number for (_, number), end in ends.items() if end):
        # A run that was lost before its first CTI may have written results all the same.
        promise, place = promises.get(number, Promise(TICK_MIN, 0, 0, TICK_MIN)), (topic.name, number)
        first = admin.offsets_from([place], promise.c)[place]
        promises_by_key[number] = read_promise_by_key(kafka, *place, first, ends[place], promise)
    return promises_by_key


def _check_channels(topic: Topic, written: Collection[int]) -> None:
    """Refuse to go on in a topic that has been given partitions since: keys would have moved."""
    other_counts = [count for count in written if count != topic.partitions]
    if other_counts:
        raise RefusedError(
            f"result topic {topic.name} has {topic.partitions} partitions, and its results were written into {max(other_counts)}",
            code="TG-TOPIC-PARTITIONS",
            where=topic.name,
            fix=f"{ELSEWHERE}: a result topic keeps the number of partitions that it was made with, since keys would move",
        )


def _write_promises(folder: Path, promises: Promises) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fields = [{str(bucket): promise.save() for bucket, promise in by_bucket.items()} for by_bucket in promises]
    replace_text(folder / FILE, json.dumps(fields))


def _read_promises(folder: Path, outputs: int) -> Promises:
    if not (folder / FILE).exists():
        return tuple({} for _ in range(outputs))
    fields = json.loads((folder / FILE).read_text())
    return tuple({int(bucket): Promise.restore(promise) for bucket, promise in by_bucket.items()} for by_bucket in fields)
