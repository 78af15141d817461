"""
Raises partitions to another input's time, for an input that imports its CTIs.
Law: an import counts like an estimate. It is journaled before it is used, at a position below which everything had been read when the
imported time was read. So earlier records are judged without it.
"""

from __future__ import annotations

import time
from dataclasses import replace

from confluent_kafka import KafkaException
from structlog.typing import FilteringBoundLogger

from ingest.config import IngestPlan, Partition
from ingest.cti_imports import ImportedFrontier
from ingest.journal.client import JournalClient
from ingest.offsets import PlannedPosition, Positions
from ordering.errors import TidegateError
from tidegate.platform.kafka.admin import Admin


class Imports:
    """The imports of one job; without imports, or in a run to the present end, it does nothing."""

    def __init__(self, plan: IngestPlan, admin: Admin, journal: JournalClient, log: FilteringBoundLogger) -> None:
        self._plan, self._admin, self._journal, self._log = plan, admin, journal, log
        self._frontier = None
        if plan.imported is not None and not plan.until_end:
            self._frontier = ImportedFrontier(plan.kafka, admin, plan.imported)
        self._due_us = 0
        self._is_lost = False
        self._raised_us: dict[Partition, int] = {}

    def raise_read(self, positions: Positions) -> dict[Partition, PlannedPosition]:
        """Return *positions*, with the partitions that were read to their end raised to the other input's time."""
        raised: dict[Partition, int] = {}
        c_us = self._read_frontier()
        behind = [partition for partition in positions if c_us is not None and self._raised_us.get(partition, 0) < c_us]
        if c_us is not None and behind and self._journal.is_available():
            # Ask for the ends after reading the imported time: records present by then are judged before that time counts.
            ends = self._admin.ends(behind, committed=False)
            read = [partition for partition in behind if ends[partition] == positions[partition].next_offset]
            raised = self._journal.journal_imports([(partition, ends[partition], c_us) for partition in read])
            self._raised_us |= raised
        return {**positions, **{partition: replace(positions[partition], import_us=us) for partition, us in raised.items()}}

    def _read_frontier(self) -> int | None:
        """Return the other input's time, once a cadence; None in between, or if it is unknown: the job continues without it."""
        now_us = time.monotonic_ns() // 1000
        if self._frontier is None or now_us < self._due_us:
            return None
        self._due_us = now_us + self._plan.settings.idle_cadence_us
        try:
            c_us = self._frontier.read_frontier()
        except (KafkaException, TidegateError) as error:
            if not self._is_lost:
                self._log.warning("no CTI is imported until the other input's topic can be read", reason=str(error))
            self._frontier.forget_positions()
            self._is_lost = True
            return None
        self._is_lost = False
        return c_us
