"""
The journal as one process of the simulated job knows it: the rules of ``ingest/journal/client.py``, for the planner and for open batches.

Law: a fact that a call returns is in force and durable. Without the journal a range is planned only where nothing can be in force that
this client does not know. Whoever finds that the journal has lost facts gives back all that it knows before it asks anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from simulation.checkpoint import Checkpoint, Fact
from simulation.reading import cti_of
from simulation.world import Carrier, Row, World, journal_key
from support.journals import MemoryJournal, close_many, estimate_many, import_many, read_many

from ordering.errors import UnreachableError
from ordering.protocol import facts as protocol
from ordering.protocol.facts import FactKind
from ordering.protocol.wire import CTI_HEADER_BYTES
from ordering.ticks import INFINITY

Marks = dict[int, list[tuple[int, int]]]
KINDS = {"estimate": FactKind.ESTIMATE, "import": FactKind.IMPORT}
_NAMES = {kind: name for name, kind in KINDS.items()}


class JournalClient:
    """
    The journal of one planner, or of one process with open batches.

    Args:
        known_facts: Returns the facts that a journal gets back which has lost them. Raises UnreachableError: nobody can say now. None: this
            process gives nothing back, and a journal that has lost what was judged does not answer it.
        start: Called once, when the journal answers for the first time.
    """

    def __init__(
        self,
        world: World,
        known_facts: Callable[[], Iterable[Fact]] | None,
        broken: frozenset[str],
        start: Callable[[], None] = lambda: None,
    ) -> None:
        self._world, self._known_facts, self._broken = world, known_facts, broken
        self._start: Callable[[], None] | None = start
        self._life: int | None = None
        self.closed: dict[int, int] = {}
        """The first open position of each partition, as last known."""
        self.known: tuple[Marks, Marks] = {}, {}
        self.is_emptied = False
        """Whether it has lost facts that only the planner can give back."""
        self.unsure: set[int] = set()
        """Partitions about which an answer was lost."""

    @property
    def is_connected(self) -> bool:
        """Whether the journal has answered the last call."""
        return self._life is not None

    def reach(self, positions: Mapping[int, int], judged: Callable[[], Mapping[int, int]] | None = None) -> None:
        """
        Connect if there is no connection; learn what is in force from *positions* on, and give back what the journal has lost below those
        that were *judged*, which is asked for once the facts are known.
        """
        if self._life is not None:
            return
        self._life = self._world.journal.lives
        try:
            if self._start is not None:
                self.ask(lambda _: None)
                self._start()
                self._start = None
            self.closed = {
                number: self.ask(lambda journal, n=number: journal.first_open(journal_key(n)))  # type: ignore[misc]
                for number in positions
            }
            if "a lost journal stays lost" not in self._broken:
                self._give_back(judged or (lambda: positions))
            wanted = [(journal_key(number), at, INFINITY) for number, at in positions.items()]
            estimates = self.ask(lambda journal: read_many(journal, FactKind.ESTIMATE, wanted))
            imports = self.ask(lambda journal: read_many(journal, FactKind.IMPORT, wanted))
            self.known = dict(zip(positions, estimates, strict=True)), dict(zip(positions, imports, strict=True))
        except UnreachableError:
            self._life = None
            self._world.happened["journal not reached"] += 1

    def _give_back(self, judged: Callable[[], Mapping[int, int]]) -> None:
        """
        Journal again what is known to have been applied, and close what was judged.

        Judged positions are open if the journal has lost facts, and if it was away and the process died before it came back.
        """
        if self._known_facts is None:
            if any(end > self.closed[number] for number, end in judged().items()):
                self._world.happened["an emptied journal left to the planner"] += 1
                self.is_emptied = True
                raise UnreachableError("the journal has lost facts", where="journal", fix="wait")
            return
        facts: dict[int, list[protocol.Fact]] = {}
        for kind, number, position, us in self._known_facts():
            facts.setdefault(number, []).append(protocol.Fact(KINDS[kind], position, us))
        for number, known in facts.items():
            self.ask(lambda journal, n=number, known=known: journal.restore(journal_key(n), known))  # type: ignore[misc]
        behind = {number: end for number, end in judged().items() if end > self.closed[number]}
        self.ask(lambda journal: close_many(journal, [(journal_key(number), end) for number, end in behind.items()]))
        if behind:
            self._world.happened["facts given back to the journal"] += 1
            self._world.tell(f"the journal is told again what was judged below {behind}")

    def ask(self, call: Callable[[MemoryJournal], Any]) -> Any:
        """Do a call. Raises UnreachableError: no answer came."""
        assert self._life is not None, "asked only where connected"
        try:
            return self._world.journal.answer(self._life, call)
        except UnreachableError:
            self._life = None
            raise

    def close(self, below: Mapping[int, int]) -> None:
        """Close positions: no fact below them changes any more."""
        if "positions stay open" not in self._broken:
            self.ask(lambda journal: close_many(journal, [(journal_key(number), end) for number, end in below.items()]))

    def read(self, spans: Mapping[int, tuple[int, int]]) -> tuple[Marks, Marks]:
        """Return the facts in force in spans (first, last) of positions: estimates and imports."""
        wanted = [(journal_key(number), *span) for number, span in spans.items()]
        marks = self.ask(lambda journal: read_many(journal, FactKind.ESTIMATE, wanted))
        imports = self.ask(lambda journal: read_many(journal, FactKind.IMPORT, wanted))
        return dict(zip(spans, marks, strict=True)), dict(zip(spans, imports, strict=True))

    @property
    def is_answered(self) -> bool:
        """Whether the next call will be carried out, and its answer come."""
        return self._life == self._world.journal.lives and not self._world.journal.away

    def close_range(self, number: int, start: int, end: int) -> list[tuple[int, int]]:
        """Close a range and return the estimates in force there, in one call."""

        def call(journal: MemoryJournal) -> list[tuple[int, int]]:
            if "positions stay open" not in self._broken:
                close_many(journal, [(journal_key(number), end)])
            return read_many(journal, FactKind.ESTIMATE, [(journal_key(number), start, end - 1)])[0]

        marks: list[tuple[int, int]] = self.ask(call)
        return marks

    def agree(self, kind: str, rising: list[tuple[int, int, int]]) -> list[int | None]:
        """Journal estimates or imports; return those in force. If no answer comes they may be in force or not."""
        if kind == "estimate" and "estimates are not journaled" in self._broken:
            return [raised for _, _, raised in rising]
        before = set(self.unsure)
        self.unsure |= {number for number, _, _ in rising}
        asked = [(journal_key(number), end, raised) for number, end, raised in rising]
        agreed: list[int | None]
        agreed = self.ask(lambda journal: estimate_many(journal, asked) if kind == "estimate" else import_many(journal, asked))
        self.unsure = before
        self._world.happened[f"{kind} refused"] += agreed.count(None)
        return agreed


def facts_of_notes(checkpoint: Checkpoint) -> list[Fact]:
    """Return the facts that open batches have noted."""
    return [("estimate", number, *mark) for number, notes in checkpoint.notes.items() for _, end in notes for mark in end.all_marks()]


def facts_of_topic(world: World) -> list[Fact]:
    """Return the facts that the ordered topic's CTIs carry, as ``ingest/journal/rebuild.py`` finds them."""
    rows = [(output, row) for output, log in enumerate(world.topic) for row in log if isinstance(row, Carrier)]
    return [
        (_NAMES[FactKind(fact.kind)], cti_of(cast(Row, row), output).number, fact.position, fact.value)
        for output, row in rows
        for fact in row.facts
        if fact.kind in (FactKind.ESTIMATE, FactKind.IMPORT)
    ]


def rebuild_journal(world: World, checkpoint: Checkpoint) -> None:
    """Give back the topic's facts at a start if positions below the planned ones are open (``restore_lost_facts`` in ``resume.py``)."""
    planned = checkpoint.offset_before(len(checkpoint.offsets)).partitions
    starts = checkpoint.start.partitions
    journal = world.journal.facts
    judged = {n: at.next_offset for n, at in enumerate(planned) if not at.is_unclosed and (n >= len(starts) or at != starts[n])}
    if not any(journal.first_open(journal_key(number)) < position for number, position in judged.items()):
        return
    world.happened["journal rebuilt from the topic"] += 1
    found: dict[int, list[protocol.Fact]] = {}
    for kind, number, position, us in [*facts_of_topic(world), *facts_of_notes(checkpoint)]:
        found.setdefault(number, []).append(protocol.Fact(KINDS[kind], position, us))
    for number, notes in checkpoint.notes.items():
        found.setdefault(number, []).extend(protocol.Fact(FactKind.CLOSED, end.next_offset, 0) for _, end in notes)
    for output, log in enumerate(world.topic):
        for row in log:
            if len(row[2]) == CTI_HEADER_BYTES:
                cti = cti_of(row, output)
                found.setdefault(cti.number, []).append(protocol.Fact(FactKind.CLOSED, cti.next_offset, 0))
    for number, facts in found.items():
        journal.restore(journal_key(number), facts)
