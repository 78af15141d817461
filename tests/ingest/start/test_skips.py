"""Skips at a start: which offsets are compared with what earlier attempts have written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.ingest_plans import RAW, ingest_plan
from support.journals import close

from ingest.journal.redis_journal import RedisJournal
from ingest.journal.skip_book import KnownSkips
from ingest.offsets import IngestOffset, PlannedPosition
from ingest.skips import Skip
from ingest.start.skips import apply_skips
from ingest.start.survey import LogSurvey


@pytest.mark.parametrize(("tried_until", "planned"), [(15, 10), (10, 15), (12, 15)])
@pytest.mark.parametrize(
    ("starts", "is_undone", "first"),
    [([10, 12], False, 10), ([12, 10], True, 10), ([9, 12], False, 12), ([9], False, None), ([15], False, None)],
)
def test_what_may_have_been_judged_under_other_skips_is_compared(
    journal: RedisJournal, tmp_path: Path, tried_until: int, planned: int, starts: list[int], is_undone: bool, first: int | None
) -> None:
    """
    From the first skip that is not judged for good, at offset 10, to where an attempt may have come: by the journal or by Spark's offset.

    A skip at the very offset at which the checkpoint stands counts: an attempt that died may have written what came of its records.
    """
    skips = tuple(Skip(*RAW, start, start + 1, is_undone=is_undone) for start in starts)
    known = KnownSkips(undone=skips) if is_undone else KnownSkips(in_force=skips)
    plan = replace(ingest_plan(checkpoint=str(tmp_path)), topic_ids={"raw": tmp_path.name})
    close(journal, plan.journal_key(RAW), tried_until)
    at, until = IngestOffset({RAW: PlannedPosition(10)}), IngestOffset({RAW: PlannedPosition(planned)})
    survey = LogSurvey(tmp_path, (), {}, done=at, planned=until, skips=known)
    compared = apply_skips(plan, survey, (), None, journal).compared  # type: ignore[arg-type]
    assert compared == ({} if first is None else {RAW: (first, 15)})
