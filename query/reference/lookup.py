"""
Which versions of reference data a bucket uses, while new ones arrive.
Law: a version that arrives before anything at or after its instant is finished counts from that instant on, so results are those of a run
that had it from the beginning. One that arrives too late counts from the instant up to which the bucket has finished; it is reported and
counted. This decision is part of the bucket's state, so a repeated batch decides nothing anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ordering.ticks import NEVER, format_tick
from query.reference.tables import ReferenceTable
from tidegate.platform.observe.logs import get_logger

# The count of versions that came too late.
LATE = "late_reference_versions"
_log = get_logger("query.reference")


@dataclass(frozen=True)
class KnownReferences:
    """The reference data that a run knows when a batch begins."""

    # Table and instant (microseconds) of each version that was taken up since the run was begun, in that order.
    added: Sequence[tuple[str, int]]
    # The tables with all versions, by name.
    tables: Mapping[str, ReferenceTable]


@dataclass
class ReferenceLookup:
    """A bucket's memory of reference data. Instants are microseconds."""

    # How many added versions the bucket knows.
    count: int = 0
    # For each table, by the own instant of a version that came too late: the instant from which on it counts.
    since_us: dict[str, dict[int, int]] = field(default_factory=dict)
    # Rows below this instant are finished.
    finished_us: int = NEVER

    def observe_finished(self, closing: pa.Table) -> None:
        """Remember the instant below which rows are finished; *closing* is that of :meth:`query.engine.program.Program.finish`."""
        if closing.num_rows:
            self.finished_us = max(self.finished_us, int(pc.max(closing["to_us"]).as_py()))

    def accept_versions(self, known: KnownReferences) -> int:
        """Take up the versions that are new to the bucket; return how many of them came too late."""
        late = 0
        for table, effective_us in known.added[self.count :]:
            if effective_us < self.finished_us:
                late += 1
                self.since_us.setdefault(table, {})[effective_us] = self.finished_us
                self._report_late(table, effective_us)
        self.count = max(self.count, len(known.added))
        return late

    def _report_late(self, table: str, effective_us: int) -> None:
        valid_from, used_from = format_tick(effective_us), format_tick(self.finished_us)
        fix = "write the file before its time comes; a run that is begun anew uses it from its own instant on"
        _log.warning(
            "reference data came too late", code="TG-REFERENCE-LATE", table=table, valid_from=valid_from, used_from=used_from, fix=fix
        )

    def tables(self, known: KnownReferences) -> dict[str, ReferenceTable]:
        return {name: table.with_delays(self.since_us.get(name, {})) for name, table in known.tables.items()}

    def lookup_from_us(self, c: int) -> int:
        """Return the instant below which no version is needed if no later row lies below *c*; both microseconds."""
        # Until a late version counts, the one before it does.
        late = [effective_us - 1 for begins in self.since_us.values() for effective_us, since_us in begins.items() if since_us > c]
        return min([c, *late])

    def save(self) -> list[Any]:
        return [self.count, {table: [*begins.items()] for table, begins in self.since_us.items()}, self.finished_us]

    @classmethod
    def restore(cls, saved: list[Any]) -> ReferenceLookup:
        count, since, finished_us = saved
        return cls(count, {table: dict(map(tuple, begins)) for table, begins in since.items()}, finished_us)
