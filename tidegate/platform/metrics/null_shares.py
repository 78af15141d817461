"""
The share of NULL in the columns that a query reads, over the last minutes, from the reports of its buckets.

Law: figures only; no result depends on them. A column is found if more than the bound of at least ``RECORDS_MIN`` records have no value in
it. A column that is NULL by nature is found too: the bound is a setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.platform.metrics.event_fates import format_share
from tidegate.platform.observe.reports import BucketReport

RECORDS_MIN = 100


@dataclass(frozen=True, slots=True)
class NullShare:
    """
    A column of an input: of *records* looked at, *nulls* have no value in it, and *absent* of these not even such a field. Several buckets
    may have looked at one record.
    """

    input: str
    column: str
    records: int
    nulls: int
    absent: int

    @property
    def share(self) -> float:
        return self.nulls / max(self.records, 1)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON, with ``share`` and ``in_words``."""
        # Shares, not counts: a record counts once for each bucket that looked at it.
        lacking = format_share(self.absent / max(self.records, 1))
        absent = f"; {lacking} have no such field: was it renamed?" if self.absent else ""
        words = f"{format_share(self.share)} of the recent records of {self.input} are NULL in {self.column}{absent}"
        numbers = {"records": self.records, "nulls": self.nulls, "absent": self.absent, "share": round(self.share, 4)}
        return {"input": self.input, "column": self.column, **numbers, "in_words": words}


def sum_null_shares(reports: Iterable[BucketReport]) -> Iterator[NullShare]:
    """Yield the columns with a NULL, over all buckets."""
    records: dict[str, int] = {}
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for report in reports:
        for input_name, found in report.nulls.items():
            records[input_name] = records.get(input_name, 0) + found.records
            for column, count in found.columns.items():
                nulls, absent = counts.get((input_name, column), (0, 0))
                counts[input_name, column] = nulls + count.nulls, absent + count.absent
    for (input_name, column), (nulls, absent) in sorted(counts.items()):
        yield NullShare(input_name, column, records[input_name], nulls, absent)


def find_null_columns(reports: Iterable[BucketReport], bound: float) -> list[NullShare]:
    """Return the columns of which more than *bound* of the recent records are NULL."""
    return [found for found in sum_null_shares(reports) if found.records >= RECORDS_MIN and found.share > bound]
