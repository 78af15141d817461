"""
Skips at a start: the requests that take effect, and the gaps in place of records that Kafka has lost.
Law: a skip that takes effect is in the journal and in the checkpoint's folder before any range is planned with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.skip_book import SkipBook, passed_error, passed_positions
from ingest.offsets import IngestOffset, PlannedPosition
from ingest.skips import Skip, first_read
from ingest.start.survey import LogSurvey, write_skips
from ordering.ticks import format_tick
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.observe.logs import get_logger

_log = get_logger("ingest.start")


def find_gaps(available: Mapping[Partition, int], needed: Mapping[Partition, PlannedPosition], skips: tuple[Skip, ...]) -> tuple[Skip, ...]:
    """Return a skip for each partition of which records that are *needed*, and not skipped, are below the first *available* offset."""
    gaps = []
    for partition, planned in needed.items():
        position = first_read(planned.next_offset, [skip.span for skip in skips if skip.input_partition == partition])
        first_offset = available.get(partition, position)
        if first_offset > position:
            why = "Kafka deleted the records before they were read"
            gaps.append(Skip(*partition, position, first_offset, why, 'on_lost_records = "gap"'))
    return tuple(gaps)


def apply_skips(plan: IngestPlan, survey: LogSurvey, gaps: tuple[Skip, ...], admin: Admin, journal: RedisJournal) -> IngestPlan:
    """Put requests and *gaps* in force, warn of requests that come too late, and return the plan with all skips."""
    known, book = survey.skips, SkipBook.of(plan, journal)
    done = plan.starts if survey.done is None else survey.done.partitions
    judged = {partition: position.next_offset for partition, position in done.items()}
    # The journal may have been rebuilt since it was surveyed.
    in_force = {skip.place: skip for skip in (*known.in_force, *book.read().in_force)}
    asked = [skip for skip in (*known.asked, *gaps) if skip.place not in in_force and skip.input_partition in plan.partitions]
    passed = passed_positions(plan, admin, judged) if asked else {}
    for skip in asked:
        if skip.start < passed[skip.input_partition]:
            error = passed_error(skip, passed[skip.input_partition], plan.settings.name)
            _log.warning(f"a skip comes too late: {error.what}", code=error.code)
            continue
        if skip in gaps:
            skip = replace(skip, at=format_tick(time.time_ns() // 1000))
            book.write(skip)
        in_force[skip.place] = skip
        _log.warning("offsets will be skipped", skip=skip.describe(), until=skip.end)
    in_order = tuple(skip for _, skip in sorted(in_force.items()))
    undone = tuple(skip for skip in known.undone if skip.place not in in_force and skip.input_partition in plan.partitions)
    book.put_in_force(in_order)
    write_skips(Path(plan.checkpoint), in_order)
    skips = (*in_order, *undone)
    return replace(plan, skips=skips, compared=_offsets_to_compare(plan, skips, judged, survey.planned, journal))


def _offsets_to_compare(
    plan: IngestPlan, skips: tuple[Skip, ...], judged: Mapping[Partition, int], planned: IngestOffset | None, journal: RedisJournal
) -> dict[Partition, tuple[int, int]]:
    """Return the offsets, by partition, whose events earlier attempts may have written and the skips ahead would change."""
    compared = {}
    for partition in {skip.input_partition for skip in skips}:
        ahead = [skip.start for skip in skips if skip.input_partition == partition and skip.start >= judged.get(partition, 0)]
        # The journal closes a position before any job judges it.
        tried_until = journal.first_open(plan.journal_key(partition))
        if planned is not None and partition in planned.partitions:
            tried_until = max(tried_until, planned.partitions[partition].next_offset)
        if ahead and min(ahead) < tried_until:
            compared[partition] = min(ahead), tried_until
    return compared
