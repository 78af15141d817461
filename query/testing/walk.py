"""
A query taken through its ordered topics, and what happens to it on the way: batches end, workers restart or are killed.

=============  ===================================================================================================
``cut``        a batch ends; the same worker goes on
``restart``    a batch ends; another worker goes on from what was saved
``kill``       the worker is lost after the batch; another one begins again from the save *back* batches before
=============  ===================================================================================================

Law: the results of each output, in their order, and the dead letters are those of a walk in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ordering.model.step import Released
from query.buckets.bucket import Bucket
from query.testing.ordered_inputs import Piece

TimedValue = tuple[int, bytes, bytes]
"""System.Timestamp in microseconds, key and value of a result."""


@dataclass(frozen=True, order=True)
class Interruption:
    """Something that happens after a number of pieces."""

    after: int
    kind: Literal["cut", "restart", "kill"]
    back: int = 0


@dataclass
class Walked:
    """The results of each output in order, and the dead letters (reason, value)."""

    results: list[list[TimedValue]]
    dead: list[tuple[str, bytes]] = field(default_factory=list)

    @classmethod
    def before_start(cls, outputs: int) -> Walked:
        return cls([[] for _ in range(outputs)])

    def copy(self) -> Walked:
        return Walked([list(each) for each in self.results], list(self.dead))

    def collect(self, released: Sequence[Released]) -> None:
        for into, each in zip(self.results, released, strict=True):
            into += zip(each.system_us.tolist(), _bytes(each.key), _bytes(each.value), strict=True)


@dataclass
class _Save:
    at: int
    head: bytes
    chunks: dict[int, bytes]
    walked: Walked


def walk(
    make: Callable[[], Bucket], pieces: Sequence[Piece], outputs: int, interruptions: Iterable[Interruption] = (), *, end: bool = True
) -> Walked:
    """
    Take a query through its logs to the end.

    Args:
        make: Returns a bucket before its first record, with code that has never run. Called again at each restart.
        interruptions: By place.
        end: Whether time ends with the logs, so that everything becomes final.
    """
    bucket, walked = make(), Walked.before_start(outputs)
    saves = [_Save(0, b"", {}, walked.copy())]
    at = 0
    for interruption in [*sorted(interruptions), None]:
        stop = len(pieces) if interruption is None else min(interruption.after, len(pieces))
        _read(bucket, pieces[at:stop], walked)
        at = stop
        if interruption is None:
            break
        _settle(bucket, walked)
        if interruption.kind == "cut":
            continue
        changes = bucket.save()
        kept = {number: data for number, data in {**saves[-1].chunks, **changes.put}.items() if number not in changes.delete}
        saves.append(_Save(at, changes.head, kept, walked.copy()))
        if interruption.kind == "kill":
            # What the lost worker wrote after the save is written again: readers keep the first, which must be the same.
            del saves[max(len(saves) - 1 - interruption.back, 0) + 1 :]
        last = saves[-1]
        at, walked = last.at, last.walked.copy()
        bucket = make()
        if last.head:
            bucket.restore(last.head, dict(last.chunks))
    _settle(bucket, walked)
    if end:
        walked.collect(bucket.end())
        _settle(bucket, walked)
    return walked


def _read(bucket: Bucket, pieces: Sequence[Piece], walked: Walked) -> None:
    for log, decoded in pieces:
        for released in bucket.accept_in_parts(log, bucket.route(log, decoded)):
            walked.collect(released)


def _settle(bucket: Bucket, walked: Walked) -> None:
    walked.collect(bucket.settle())
    while not bucket.is_settled:
        walked.collect(bucket.settle())
    bucket.next_ctis()
    walked.dead += [(row.reason, row.value or b"") for row in bucket.pop_bad_rows()]


def _bytes(column: object) -> list[bytes]:
    values: list[bytes | None] = column.tolist() if hasattr(column, "tolist") else column.to_pylist()  # type: ignore[attr-defined]
    return [value or b"" for value in values]
