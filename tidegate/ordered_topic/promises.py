"""
The end of an ordered topic: the last valid CTI of each channel, which is its current promise, and whether the topic's run has ended.

Law: the result equals a walk over the whole topic by the reader's rule (:mod:`ordering.protocol.resume`). Only a tail is read, a longer one
each time until it has a CTI of each channel. That is enough, because every event below a CTI's ``n`` was acknowledged before the CTI was
written (PROTOCOL.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

from ordering.errors import RefusedError
from ordering.protocol.punctuation import Cti
from ordering.protocol.resume import LastPromises
from ordering.ticks import INFINITY
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.tails import read_tails

# The advice in ingest's errors for writing to another topic.
OTHER_TOPIC_FIX = "set ordered_topic to a topic that is not there yet"
# The last CTI of each channel that has one: by roster number, then by output partition.
Promises = dict[int, dict[int, Cti]]
# The first offset, or the end, of every partition of one topic.
Offsets = Mapping[tuple[str, int], int]


def last_promises(properties: Mapping[str, str], starts: Offsets, ends: Offsets, other_topic_fix: str = OTHER_TOPIC_FIX) -> Promises:
    """
    Return the last CTI of each channel of a topic; *other_topic_fix* is the advice in errors. Raises RefusedError: a channel has ended
    (TG-TOPIC-ENDED), or retention may have deleted its last CTI (TG-RETENTION); ProtocolError: a newer program has written a record.
    """
    promises: Promises = {}
    for (topic, partition), walk in _walk_topic(properties, starts, ends):
        start = starts[topic, partition]
        if any(cti.c == INFINITY for cti in walk.promises.values()):
            raise ended_error(topic, other_topic_fix)
        if start and not _is_complete(walk):
            what = "retention has deleted CTIs that show how far the ordered topic goes"
            fix = f"bring the checkpoint back, or {other_topic_fix}, and give it a longer retention"
            raise RefusedError(what, code="TG-RETENTION", where=f"{topic}-{partition}@{start}", fix=fix)
        _add_promises(promises, partition, walk)
    return promises


def last_ctis(properties: Mapping[str, str], starts: Offsets, ends: Offsets) -> Promises:
    """Return the last CTI of each channel of a topic that has one, final ones too."""
    promises: Promises = {}
    for (_, partition), walk in _walk_topic(properties, starts, ends):
        _add_promises(promises, partition, walk)
    return promises


def _add_promises(promises: Promises, partition: int, walk: LastPromises) -> None:
    for number, cti in walk.promises.items():
        # How far events have come does not depend on the listed substreams.
        promises.setdefault(number, {})[partition] = replace(cti, listed=(), part=0, parts=1)


def _walk_topic(properties: Mapping[str, str], starts: Offsets, ends: Offsets) -> Iterator[tuple[tuple[str, int], LastPromises]]:
    for place, end in sorted(ends.items()):
        yield place, _walk_tails(properties, *place, len(ends), starts[place], end)


def ended_error(topic: str, other_topic_fix: str = OTHER_TOPIC_FIX) -> RefusedError:
    """Return the error for a topic whose run has ended; *other_topic_fix* is the way to write to another topic."""
    fix = f"{other_topic_fix}, or delete this topic and its checkpoint to run again"
    return RefusedError(f"ordered topic {topic} has ended: its final CTI is written", code="TG-TOPIC-ENDED", where=topic, fix=fix)


def _walk_tails(properties: Mapping[str, str], topic: str, partition: int, partitions: int, start: int, end: int) -> LastPromises:
    with closing(read_tails(properties, topic, partition, start, end)) as tails:
        for tail in tails:
            walk = LastPromises(partition, partitions, from_beginning=tail.first == 0)
            for records in tail.records:
                walk.accept(decode(records, topic, partition).log)
            if _is_complete(walk):
                break
    return walk


def _is_complete(walk: LastPromises) -> bool:
    return walk.roster is not None and not walk.missing()


def has_ended(properties: Mapping[str, str], starts: Offsets, ends: Offsets) -> bool:
    """Return whether every channel of a topic ends in a final CTI. Raises ProtocolError like :func:`last_promises`."""
    return read_end(properties, starts, ends) is not None


def read_end(properties: Mapping[str, str], starts: Offsets, ends: Offsets) -> dict[int, Cti] | None:
    """Return a final CTI of each input partition, by roster number, if every channel of a topic has one; else None."""
    finals: dict[int, Cti] = {}
    for _, walk in _walk_topic(properties, starts, ends):
        if not _is_complete(walk) or any(cti.c != INFINITY for cti in walk.promises.values()):
            return None
        finals |= walk.promises
    return finals
