"""
What a worker remembers of one ingest job between its batches. Law: results do not depend on it; a new worker makes it again.
"""

from __future__ import annotations

from ingest.config import IngestPlan
from ingest.journal.client import JournalClient
from tidegate.platform.checkpoint.open_batches import GrowingSpans
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.worker import WORKER


class JobMemory:
    """The memory of one job in this process (:meth:`tidegate.platform.kafka.worker.Worker.memory`)."""

    def __init__(self) -> None:
        # The journal as an open batch knows it; None: none has asked, or it did not answer the last one.
        self.journal: JournalClient | None = None
        # The client that an open batch asks for ends; None: none has asked.
        self.admin: Admin | None = None
        self.spans = GrowingSpans()
        # How long the last task waited for acknowledgements, seconds: part of its next report.
        self._waited_s = 0.0

    @classmethod
    def of(cls, plan: IngestPlan) -> JobMemory:
        return WORKER.memory(plan.checkpoint, cls)

    def keep_wait(self, waited_s: float) -> None:
        """Remember how long the acknowledgements of a task took."""
        self._waited_s = waited_s

    def pop_wait(self) -> float:
        """Return it once, then 0."""
        waited_s, self._waited_s = self._waited_s, 0.0
        return waited_s
