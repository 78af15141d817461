"""
What a job leaves on disk: the offset log, the commit log and the state after each batch, as Spark keeps them.

Law: the offset of a batch is logged before the batch runs and never changed; a batch counts once it is committed, and
until then it runs again from the state that the batch before it left.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Planned:
    """How far one input partition is planned: see ``ingest.offsets.Planned``."""

    next_offset: int = 0
    frontier_us: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    planned_us: int = 0


@dataclass(frozen=True, slots=True)
class Offset:
    """The positions of all input partitions; *final* once the input has ended."""

    partitions: tuple[Planned, ...]
    final: bool = False

    def with_planned(self, planned: dict[int, Planned]) -> Offset:
        """Return the offset with some partitions further on."""
        return replace(self, partitions=tuple(planned.get(number, at) for number, at in enumerate(self.partitions)))

    def estimates(self, start: Offset) -> list[tuple[int, int, int]]:
        """Return the (input partition, position, frontier) that the batch from *start* to here applies."""
        found = []
        for number, (here, there) in enumerate(zip(start.partitions, self.partitions, strict=True)):
            if here != there:
                found += [(number, *mark) for mark in there.marks]
                found += [(number, there.next_offset, there.frontier_us)] if there.frontier_us else []
        return found


class ConflictError(Exception):
    """Another driver has logged that batch: this one is too old to go on."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A state as it was saved: *nonce* tells which attempt did it."""

    nonce: int
    head: bytes
    chunks: dict[int, bytes]


@dataclass(slots=True)
class Checkpoint:
    """The checkpoint folder of one job."""

    start: Offset
    offsets: list[Offset] = field(default_factory=list)
    committed: int = 0
    states: dict[int, dict[int, Saved]] = field(default_factory=dict)

    def copy(self) -> Checkpoint:
        """Return the folder as a backup of now would bring it back."""
        return Checkpoint(self.start, list(self.offsets), self.committed, {number: dict(saved) for number, saved in self.states.items()})

    def offset_before(self, batch: int) -> Offset:
        """Return where a batch starts."""
        return self.offsets[batch - 1] if batch else self.start

    def log(self, batch: int, offset: Offset) -> None:
        """
        Log the offset at which a batch ends.

        Raises:
            ConflictError: It is logged already.
        """
        if batch != len(self.offsets):
            raise ConflictError
        self.offsets.append(offset)

    def commit(self, batch: int) -> None:
        """
        Commit a batch.

        Raises:
            ConflictError: It is committed already.
        """
        if batch != self.committed:
            raise ConflictError
        self.committed = batch + 1

    def state_before(self, batch: int, number: int) -> Saved | None:
        """Return the state of an input partition before a batch; None before its first."""
        versions = self.states.get(number, {})
        newest = max((version for version in versions if version < batch), default=None)
        return None if newest is None else versions[newest]

    def save(self, batch: int, number: int, saved: Saved) -> None:
        """Keep the state of an input partition after a batch, in place of what an earlier attempt left."""
        self.states.setdefault(number, {})[batch] = saved
