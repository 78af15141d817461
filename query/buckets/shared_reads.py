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


class SharedReads:
    """The ranges of one job that a worker keeps for buckets that have not read them yet."""

    def __init__(self) -> None:
        # By log.
        self._ranges: dict[int, _SharedRange] = {}

    def share(
        self, log: int, start: int, end: int, bucket: int, siblings: range, bytes_max: int, read: Callable[[], Iterator[DecodedRange]]
    ) -> Iterator[DecodedRange]:
        """
        Yield the pieces of the range [*start*, *end*) of a log, which *read* reads. *siblings* are the buckets that ask in the same task.
        All ranges that are kept have at most *bytes_max* together.
        """
        shared = self._ranges.get(log)
        if shared is not None and (shared.start, shared.end) == (start, end) and bucket in shared.waiting:
            shared.waiting.remove(bucket)
            if not shared.waiting:
                del self._ranges[log]
            yield from shared.pieces
            return
        self._ranges.pop(log, None)
        waiting = set(siblings) - {bucket}
        if not waiting:
            yield from read()
            return
        growing = self._ranges[log] = _SharedRange(start, end)
        for piece in read():
            growing.pieces.append(piece)
            growing.nbytes += piece.nbytes
            if waiting and sum(kept.nbytes for kept in self._ranges.values()) > bytes_max:
                waiting.clear()
                self._ranges.pop(log, None)
            if not waiting:
                growing.pieces.clear()
            yield piece
        growing.waiting |= waiting

    def forget(self) -> None:
        """Drop all ranges that wait for buckets: one of them has failed."""
        self._ranges.clear()
