"""
The results that a lost run has left in a channel after its last CTI, counted by substream: by key, or by key and input partition.

The order in which results of several inputs become final depends on how far each input had come (:mod:`query.buckets.log_walk`); if the
pace counts events, that of several input partitions does too. A run that begins in the middle does not know that of earlier records. So its
order between substreams differs, and a single count could not show which results are written. Results of one come in the order of time.
Nor may a query that was changed write over what stands: readers accept the first result of each number, whichever query it is of. So these
results keep their numbers.

Law: the results that such a run computes for a substream begin with those that the channel holds of it, also after the last CTI, if the
query is the same; so a count for each substream identifies them. Of a changed query as many are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow.compute as pc

from ordering.errors import RefusedError
from ordering.protocol.wire import PARTITION_SHIFT
from query.config import Promise, Substream
from tidegate.ordered_topic.decode import decode
from tidegate.platform.kafka.ranges import RangeReader

# System.Timestamp in microseconds and substream of each result, by its number.
Written = dict[int, tuple[int, Substream]]


def read_promise_by_substream(properties: Mapping[str, str], topic: str, partition: int, first: int, end: int, promise: Promise) -> Promise:
    """
    Return a channel's last *promise* with the results that it holds from there to *end*, by substream; RefusedError (TG-RETENTION) if some
    are deleted. No record before offset *first* has a timestamp of ``promise.c`` or more.
    """
    written: Written = {}
    with RangeReader(properties, topic, partition, headers=True) as reader:
        for records in reader.read(first, end):
            results = decode(records, topic, partition).events
            input_partitions = (results.fields["offset"] >> PARTITION_SHIFT).tolist()
            substreams = map(Substream, input_partitions, pc.fill_null(results.key, b"").to_pylist())
            # The first copy of a result is the one that readers accept.
            for seq, system_us, substream in zip(results.seq.tolist(), results.system_us.tolist(), substreams, strict=True):
                written.setdefault(seq, (system_us, substream))
    promised = count_ahead_by_substream(promise, written)
    if promised is None:
        reason = f"retention has deleted results from the last CTI of {topic}-{partition} on, so it is unknown which ones are written"
        fix = "bring the checkpoint back, or write INTO an output that is not there yet"
        raise RefusedError(reason, code="TG-RETENTION", where=f"{topic}-{partition}@{first}", fix=fix)
    return promised


def count_ahead_by_substream(promise: Promise, written: Written) -> Promise | None:
    """Return a promise that counts the written results ahead of it, and those after it, by substream; None if some are missing."""
    n = promise.n
    while n in written:
        n += 1
    ahead = [written[seq] for seq in sorted(written) if seq < n and written[seq][0] >= promise.c]
    if len(ahead) != promise.ahead + n - promise.n:
        return None
    times: dict[Substream, list[int]] = {}
    for system_us, substream in ahead:
        times.setdefault(substream, []).append(system_us)
    largest_us = max([promise.largest_us, *(system_us for system_us, _ in ahead)])
    return replace(promise, n=n, ahead=len(ahead), largest_us=largest_us, by_substream=times)
