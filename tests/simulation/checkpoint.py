"""
What a job leaves on disk: the offset log, the commit log and the state after each batch, as Spark keeps them.

Law: the offset of a batch is logged before the batch runs and never changed; a batch counts once it is committed, and
until then it runs again from the state that the batch before it left. The commit names the states: what any other attempt
saves does not count. If a batch stays open its state may stand beyond its offset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

from ingest.planner.stage_progress import StageProgress
from ingest.skips import Skip
from ordering.protocol.punctuation import Cti
from ordering.ticks import NEVER

Fact = tuple[str, int, int, int]
"""A fact of the journal: ``estimate`` or ``import``, input partition, position, time in microseconds."""


@dataclass(frozen=True, slots=True)
class Planned:
    """How far one input partition is planned: see ``ingest.offsets.Planned``."""

    next_offset: int = 0
    frontier_us: int = 0
    marks: tuple[tuple[int, int], ...] = ()
    planned_us: int = 0
    import_us: int = 0
    imports: tuple[tuple[int, int], ...] = ()
    is_unclosed: bool = False

    def all_marks(self) -> tuple[tuple[int, int], ...]:
        """Return the estimates for the range that ends here and for its end."""
        return (*self.marks, (self.next_offset, self.frontier_us)) if self.frontier_us else self.marks

    def all_imports(self) -> tuple[tuple[int, int], ...]:
        """Return the imports for the range that ends here and for its end."""
        return (*self.imports, (self.next_offset, self.import_us)) if self.import_us else self.imports


@dataclass(frozen=True, slots=True)
class Offset:
    """The positions of all input partitions; *final* once the input has ended; *joined* has J of those that were added, in turn."""

    partitions: tuple[Planned, ...]
    final: bool = False
    joined: tuple[int, ...] = ()

    def joined_us(self, number: int) -> int:
        """Return when an input partition joined; ``NEVER`` of one that was there from the start."""
        place = number - (len(self.partitions) - len(self.joined))
        return self.joined[place] if place >= 0 else NEVER

    def with_planned(self, planned: dict[int, Planned]) -> Offset:
        """Return the offset with some partitions further on."""
        return replace(self, partitions=tuple(planned.get(number, at) for number, at in enumerate(self.partitions)))

    def facts(self, start: Offset) -> list[Fact]:
        """Return what of the journal the batch from *start* to here applies."""
        found: list[Fact] = []
        # One that has just joined has nothing in force.
        for number, (here, there) in enumerate(zip(start.partitions, self.partitions, strict=False)):
            if here != there:
                found += [("estimate", number, *mark) for mark in there.all_marks()]
                found += [("import", number, *mark) for mark in there.all_imports()]
        return found


class ConflictError(Exception):
    """Another driver has logged that batch: this one is too old to go on."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A state as it was saved: *nonce* tells which attempt did it, *facts* what of the journal it had applied at its position."""

    nonce: int
    head: bytes
    chunks: dict[int, bytes]
    next_offset: int = 0
    facts: tuple[Fact, ...] = ()


class Fellow(Protocol):
    """A task that may go on after its batch."""

    def goes_on(self) -> bool:
        """Return whether it does, and nobody has seen its end."""


@dataclass(slots=True)
class Checkpoint:
    """
    The checkpoint folder of one job.

    *promises* are what it began with if an earlier folder was lost; *reached* is what the driver left of the stages' reports;
    *notes* has what open batches have closed and estimated, by input partition, with the batch. *used* is no file: it is what open batches
    applied, whatever became of them.
    """

    start: Offset
    offsets: list[Offset] = field(default_factory=list)
    committed: int = 0
    states: dict[int, dict[int, Saved]] = field(default_factory=dict)
    promises: dict[int, dict[int, Cti]] | None = None
    reached: dict[int, StageProgress] = field(default_factory=dict)
    # By whose clock what was reached is told: the boot.
    boots: dict[int, str] = field(default_factory=dict)
    # What its file of skips holds.
    skips: tuple[Skip, ...] = ()
    # The number of requests to end an open batch; 0: none ever was.
    end_request: int = 0
    notes: dict[int, list[tuple[int, Planned]]] = field(default_factory=dict)
    fellows: list[Fellow] = field(default_factory=list)
    used: list[Fact] = field(default_factory=list)

    def copy(self) -> Checkpoint:
        """Return the folder as a backup of now would bring it back."""
        states = {number: dict(saved) for number, saved in self.states.items()}
        return replace(
            self,
            offsets=list(self.offsets),
            states=states,
            reached=dict(self.reached),
            boots=dict(self.boots),
            notes={number: list(notes) for number, notes in self.notes.items()},
            fellows=[],
            used=list(self.used),
        )

    def begin_notes(self, batch: int, number: int) -> bool:
        """Begin the notes of a task, and delete old ones; return False if an attempt before it has begun them."""
        begun = self.notes.setdefault(number, [])
        is_first = all(noted != batch for noted, _ in begun)
        self.notes[number] = [note for note in begun if note[0] >= batch - 1] + [(batch, Planned())] * is_first
        return is_first

    def note(self, batch: int, number: int, end: Planned) -> None:
        """Note where a range ends that was closed, or an estimate, with its facts."""
        self.notes.setdefault(number, []).append((batch, end))

    def all_have_ended(self) -> bool:
        """Return whether nothing goes on after the last batch."""
        self.fellows = [fellow for fellow in self.fellows if fellow.goes_on()]
        return not self.fellows

    def offset_before(self, batch: int) -> Offset:
        """Return where a batch starts."""
        return self.offsets[batch - 1] if batch else self.start

    def facts(self) -> list[Fact]:
        """Return every fact of the journal that its batches apply."""
        return [fact for batch, offset in enumerate(self.offsets) for fact in offset.facts(self.offset_before(batch))]

    def log(self, batch: int, offset: Offset) -> None:
        """
        Log the offset at which a batch ends.

        Raises:
            ConflictError: It is logged already.
        """
        if batch != len(self.offsets):
            raise ConflictError
        self.offsets.append(offset)

    def commit(self, batch: int, saved: dict[int, Saved]) -> None:
        """
        Commit a batch, with the states that its tasks have *saved*, by input partition.

        Raises:
            ConflictError: It is committed already.
        """
        if batch != self.committed:
            raise ConflictError
        self.committed = batch + 1
        for number, state in saved.items():
            self.states.setdefault(number, {})[batch] = state

    def judged(self, offset: Offset, last_batch: float = math.inf) -> dict[int, int]:
        """
        Return up to where the partitions of an *offset* were judged: open batches, up to *last_batch*, have gone on beyond it
        (``judged_positions``).
        """
        judged = {number: at.next_offset for number, at in enumerate(offset.partitions)}
        for number, known in self.reached.items():
            if number in judged and 0 <= known.open_batch <= last_batch:
                judged[number] = max(judged[number], known.next_offset)
        return judged

    def state_before(self, batch: int, number: int) -> Saved | None:
        """Return the state of an input partition before a batch; None before its first."""
        versions = self.states.get(number, {})
        newest = max((version for version in versions if version < batch), default=None)
        return None if newest is None else versions[newest]
