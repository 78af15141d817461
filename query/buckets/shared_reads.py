"""
Shared reads: the buckets of an exchange that one task evaluates one after the other read the same ranges once.

The first bucket reads and decodes a range and routes its events; the others get the same pieces. Law: they get exactly what they would
read. The pieces stay in the worker's memory until the last bucket has got them, or the next range of the same log is read. A bucket that
does not find them, after a failure or because there was no room, reads the range itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from query.columns.decoded_range import DecodedRange


@dataclass(slots=True)
class _SharedRange:
    start: int
    end: int
    pieces: list[DecodedRange] = field(default_factory=list)
    nbytes: int = 0
    # The buckets that have not got the pieces yet; empty until the range has been read.
    waiting: set[int] = field(default_factory=set)


_shared: dict[tuple[str, int], _SharedRange] = {}


def share_range(
    job: str, log: int, start: int, end: int, bucket: int, siblings: range, bytes_max: int, read: Callable[[], Iterator[DecodedRange]]
) -> Iterator[DecodedRange]:
    """
    Yield the pieces of the range [*start*, *end*) of a log, which *read* reads.

    *job* is a name of the job that is unique on this machine, its checkpoint; *siblings* are the buckets that ask in the same task. All
    ranges of the job that are kept have at most *bytes_max* together.
    """
    shared = _shared.get((job, log))
    if shared is not None and (shared.start, shared.end) == (start, end) and bucket in shared.waiting:
        shared.waiting.remove(bucket)
        if not shared.waiting:
            del _shared[job, log]
        yield from shared.pieces
        return
    _shared.pop((job, log), None)
    waiting = set(siblings) - {bucket}
    if not waiting:
        yield from read()
        return
    growing = _shared[job, log] = _SharedRange(start, end)
    for piece in read():
        growing.pieces.append(piece)
        growing.nbytes += piece.nbytes
        if waiting and sum(kept.nbytes for (name, _), kept in _shared.items() if name == job) > bytes_max:
            waiting.clear()
            _shared.pop((job, log), None)
        if not waiting:
            growing.pieces.clear()
        yield piece
    growing.waiting |= waiting


def forget_job(job: str) -> None:
    """Drop all ranges that wait for buckets of a job: one of them has failed."""
    for name in [name for name in _shared if name[0] == job]:
        del _shared[name]
