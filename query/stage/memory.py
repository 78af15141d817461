"""
What a worker remembers of one query job between its batches. Law: results do not depend on it; a new worker makes it again.
"""

from __future__ import annotations

from pathlib import Path

from query.absent_columns import FirstRecords
from query.buckets.shared_reads import SharedReads
from query.config import QueryPlan
from query.null_shares import NullCounts
from query.reference.lookup import KnownReferences
from query.reference.watch import TakenVersions
from sinks.base import Sink
from sinks.registry import make_sinks
from tidegate.platform.checkpoint.open_batches import GrowingSpans
from tidegate.platform.kafka.worker import WORKER


class JobMemory:
    """The memory of one job in this process (:meth:`tidegate.platform.kafka.worker.Worker.memory`)."""

    def __init__(self) -> None:
        self.spans = GrowingSpans()
        self.shared_reads = SharedReads()
        # By output; by bucket, since a worker may run many batches of a bucket, and the first records are those of all of them.
        self._sinks: dict[int, list[Sink]] = {}
        self._first_records: dict[int, FirstRecords] = {}
        self._null_counts: dict[int, NullCounts] = {}
        # How many later versions were taken, and the reference data with them.
        self._references: tuple[int, KnownReferences] | None = None

    @classmethod
    def of(cls, plan: QueryPlan) -> JobMemory:
        return WORKER.memory(plan.checkpoint, cls)

    def sinks(self, plan: QueryPlan, output: int) -> list[Sink]:
        """Return the sinks of an output: some hold connections."""
        if output not in self._sinks:
            settings, columns = plan.outputs[output], plan.plans[output].columns
            self._sinks[output] = make_sinks(settings, plan.kafka, plan.result_bytes_max[output], columns)
        return self._sinks[output]

    def first_records(self, plan: QueryPlan, bucket: int) -> FirstRecords:
        """Return the columns that the first records of a bucket lack."""
        return self._first_records.setdefault(bucket, FirstRecords(plan.plans))

    def null_counts(self, plan: QueryPlan, bucket: int) -> NullCounts:
        """Return the counts of the nulls that a bucket has read."""
        return self._null_counts.setdefault(bucket, NullCounts(plan.plans))

    def references(self, plan: QueryPlan, added: int) -> KnownReferences:
        """Return the reference data with the first *added* later versions."""
        if self._references is None or self._references[0] != added:
            versions_taken = TakenVersions.read(Path(plan.checkpoint))
            assert versions_taken is not None, "a run with reference data begins with some"
            versions = [(version.table, version.effective_us) for version in versions_taken.added[:added]]
            self._references = added, KnownReferences(versions, versions_taken.tables(plan.reference_settings, added))
        return self._references[1]
