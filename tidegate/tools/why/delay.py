"""
The delay of an output, divided by cause: how far its results are behind the clock, and what each stage and each policy adds.

Law: the parts are not negative and add up to the delay. Those of ingest are of the partition that is furthest behind, as
:mod:`tidegate.platform.metrics.watermark_delay` divides them; ``query`` is what the queries of a chain add. The delay is 0 if the results
are ahead of the clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from ordering.ticks import INFINITY, NEVER, SECOND_US
from tidegate.platform.metrics.watermark_delay import Tolerances, delay_causes
from tidegate.tools.why.facts import InputFacts, OutputFacts

CAUSES = ("source", "reorder", "late", "silence", "lag", "batch", "query")
# What the causes of a watermark's delay are called here.
_NAMES = {"sink": "batch", "pipeline": "batch", "reader_behind": "lag"}


def split_delay(facts: OutputFacts, now_us: int) -> Mapping[str, float] | None:
    """Return the seconds of each cause; None: no result is complete yet, or all are."""
    if facts.complete_us in (NEVER, INFINITY):
        return None
    parts = _split(facts, now_us)
    return {cause: round(parts[cause] / SECOND_US, 3) for cause in CAUSES}


def _split(facts: OutputFacts, now_us: int) -> dict[str, int]:
    total = max(now_us - facts.complete_us, 0)
    known = [each for each in facts.sources if NEVER < each.complete_us < INFINITY]
    slowest = min(known, key=lambda source: source.complete_us, default=None)
    before = dict.fromkeys(CAUSES, 0)
    if isinstance(slowest, OutputFacts):
        before = _split(slowest, now_us)
    elif isinstance(slowest, InputFacts):
        before = _split_input(slowest, now_us)
    # A source may have been asked a moment later: it is not behind by more than what reads it.
    over = sum(before.values()) - total
    for cause in CAUSES:
        cut = min(max(over, 0), before[cause])
        before[cause] -= cut
        over -= cut
    before["query"] += total - sum(before.values())
    return before


def _split_input(facts: InputFacts, now_us: int) -> dict[str, int]:
    parts = dict.fromkeys(CAUSES, 0)
    reported = [each for each in facts.partitions if each.report is not None and NEVER < each.complete_us < INFINITY]
    furthest = min(reported, key=lambda partition: partition.complete_us, default=None)
    if furthest is None or furthest.report is None:
        return parts
    for cause, us in delay_causes(furthest.report, Tolerances(facts.reorder_us, facts.late_us), furthest.lag, now_us).items():
        parts[_NAMES.get(cause, cause)] += us
    return parts
