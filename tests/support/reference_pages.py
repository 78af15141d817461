"""
The pages of the reference of Stream Analytics' language, and what becomes of each here: docs/queries/stream-analytics-pages.md.

``python tests/support/reference_pages.py`` writes the page. Functions are looked up in the catalogue of the language, cases in tests/cases,
so the page names nothing that is not there. ``tests/docs/test_stream_analytics_pages.py`` fails if a function of the language is on no page
and in no list, if a page has no case, or if the page is not the one that is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "queries" / "stream-analytics-pages.md"
CASES = ROOT / "tests" / "cases"
SAME, BETTER, DIFFERENT = "same", "better", "different"
_SHOWN_MAX = 2


@dataclass(frozen=True)
class Reference:
    """
    One page of the reference.

    Args:
        title: What it is about.
        verdict: Whether a script gives the same here, more than there, or something else.
        note: In what way, and why.
        functions: The functions of the catalogue that it describes.
        shown_by: What stands in the script of a case about it; empty: a call of its functions.
        cases: Its cases, where the script does not tell them.
    """

    title: str
    verdict: str = SAME
    note: str = ""
    functions: tuple[str, ...] = ()
    shown_by: str = ""
    cases: tuple[str, ...] = ()

    def found_cases(self) -> list[str]:
        """Return the cases about it, those with few other functions first."""
        if self.cases:
            return list(self.cases)
        pattern = re.compile(self.shown_by or rf"\b({'|'.join(self.functions)})\s*\(", re.IGNORECASE)
        return [name for name, script in scripts().items() if pattern.search(script)]


def _function(title: str, note: str = "", verdict: str = SAME, *more: str) -> Reference:
    return Reference(title, verdict, note, (title.lower(), *more))


_EXACT = "the exact result, rounded once: the order of rows cannot show"
_SCORES = "the published algorithm, repeatable to the byte; Azure does not publish its own to the digit, so scores differ"
_PLANE = "in the plane of longitude and latitude, as from compatibility level 1.2 on"
_WINDOW = "also by the clock of a place: TimeZone"
_CHARACTERS = "positions count code points"

PAGES: dict[str, tuple[Reference, ...]] = {
    "Aggregates": (
        _function("AVG", _EXACT, BETTER),
        _function("COUNT", "COUNT(DISTINCT x) with OVER too", BETTER),
        _function("Collect"),
        _function("CollectTop"),
        _function("MAX"),
        _function("MIN"),
        _function("Percentile_Cont"),
        _function("Percentile_Disc"),
        _function("STDEV", _EXACT, BETTER),
        _function("STDEVP", _EXACT, BETTER),
        _function("SUM", f"{_EXACT}; beyond 64 bits NULL", BETTER),
        _function("TopOne"),
        _function("VAR", _EXACT, BETTER),
        _function("VARP", _EXACT, BETTER),
    ),
    "Analytic functions": (
        _function("AnomalyDetection_SpikeAndDip", _SCORES, DIFFERENT),
        _function("AnomalyDetection_ChangePoint", _SCORES, DIFFERENT),
        _function("ISFIRST"),
        _function("LAG"),
        _function("LAST"),
    ),
    "Arrays and records": (
        _function("GetArrayLength"),
        _function("GetArrayElement"),
        Reference("GetArrayElements", BETTER, "with OUTER APPLY too", shown_by=r"getarrayelements\s*\("),
        _function("GetRecordProperties", "with OUTER APPLY too", BETTER),
        _function("GetRecordPropertyValue"),
        _function("JSON_PARSE"),
    ),
    "Bitwise operators": tuple(Reference(f"`{sign}`", note="of bigints", cases=("scalars/bitwise",)) for sign in ("&", "|", "^", "~")),
    "Conversions": (
        Reference("CAST", BETTER, "a value that cannot be converted is a dead letter, and the job goes on", shown_by=r"\bcast\s*\("),
        _function("GetType"),
        Reference("TRY_CAST", shown_by=r"try_cast\s*\("),
    ),
    "Dates and times": (
        _function("DATEADD", "with AT TIME ZONE also in the calendar of a place", BETTER),
        _function("DATEDIFF", "with AT TIME ZONE also in the calendar of a place", BETTER),
        _function("DATENAME"),
        _function("DATEPART"),
        _function("DATETIMEFROMPARTS", "parts that are no date make the row a dead letter", BETTER),
        _function("DAY"),
        _function("MONTH"),
        _function("YEAR"),
    ),
    "Geography": (
        _function("CreateLineString"),
        _function("CreatePoint"),
        _function(
            "CreatePolygon",
            "the order of points does not matter: the inside is what they enclose; there a clockwise ring means the rest of the globe",
            DIFFERENT,
        ),
        _function("ST_DISTANCE", "a geodesic of WGS-84, rounded to the millimetre; Azure's differs by about as much", DIFFERENT),
        _function("ST_OVERLAPS", _PLANE),
        _function("ST_INTERSECTS", _PLANE),
        _function("ST_WITHIN", _PLANE),
    ),
    "Metadata": (
        Reference(
            "GetMetadataPropertyValue",
            DIFFERENT,
            "EventId, offset, partition, arrival, key; headers as `User`, IoTHub from the payload; those of blobs are refused",
            shown_by=r"getmetadatapropertyvalue\s*\(",
        ),
    ),
    "Mathematics": (
        _function("ABS"),
        _function("CEILING"),
        _function("EXP"),
        _function("FLOOR"),
        _function("POWER", "always a float; there the power of a bigint is a bigint", DIFFERENT),
        _function("ROUND"),
        _function("SIGN"),
        _function("SQUARE"),
        _function("SQRT", "of a negative number NULL"),
    ),
    "Texts": (
        _function("CHARINDEX", _CHARACTERS),
        _function("CONCAT"),
        _function("CONCAT_WS"),
        _function("LEFT", "a negative length counts as 0, and does not end the job", BETTER),
        _function("LEN"),
        _function("LOWER"),
        _function("LTRIM"),
        _function("NCHAR"),
        _function("PATINDEX", "the pattern may be a column", BETTER),
        _function(
            "REGEXMATCH",
            "linear time: look-ahead and back references are refused, and so is a pattern that is none; there it gives 0",
            DIFFERENT,
        ),
        _function("REPLACE"),
        _function("REPLICATE", "NULL beyond a million characters"),
        _function("REVERSE"),
        _function("RIGHT", "a negative length counts as 0, and does not end the job", BETTER),
        _function("RTRIM"),
        _function("SPACE", "NULL beyond a million characters"),
        _function("STUFF", _CHARACTERS),
        _function("SUBSTRING", "a negative length counts as 0, and does not end the job", BETTER),
        _function("TRANSLATE"),
        _function("TRIM"),
        _function("UNICODE"),
        _function("UPPER"),
    ),
    "Windows": (
        _function("HoppingWindow", _WINDOW, BETTER, "hopping"),
        _function("SessionWindow", "", SAME, "session"),
        _function("SlidingWindow", "", SAME, "sliding"),
        _function("SnapshotWindow"),
        _function("TumblingWindow", _WINDOW, BETTER, "tumbling"),
        _function("Windows", "", SAME, "window"),
    ),
    "Language": (
        Reference(
            "Data types", note="a bit is a bit, as from compatibility level 1.2 on", cases=("projections/casts", "projections/kinds")
        ),
        Reference("APPLY", BETTER, "several in a row, and over a whole event", shown_by=r"\b(cross|outer) apply\b"),
        Reference("CASE", shown_by=r"\bcase\b"),
        _function("COALESCE"),
        Reference("CREATE TABLE", note="a row that does not fit is a dead letter", shown_by=r"create table"),
        Reference("FROM", cases=("compose/bracketed_names", "compose/subquery")),
        Reference("GROUP BY", shown_by=r"group by"),
        Reference("HAVING", shown_by=r"\bhaving\b"),
        Reference(
            "INTO", BETTER, "several statements may write into one output", cases=("compose/default_output", "compose/one_output_twice")
        ),
        Reference("JOIN", shown_by=r"\bjoin\b.*\bdatediff\b"),
        Reference(
            "MATCH_RECOGNIZE",
            BETTER,
            "also `{n,m}`, WHEN, every aggregate in MEASURES, expressions in MIN and MAX",
            shown_by="match_recognize",
        ),
        _function("NULLIF"),
        Reference("OVER", shown_by=r"limit duration"),
        Reference(
            "Reference data in JOIN",
            BETTER,
            "a replay finds the version that was found",
            cases=("joins/reference", "joins/reference_versions"),
        ),
        Reference("SELECT", cases=("projections/names", "projections/star")),
        Reference("UNION", shown_by=r"\bunion\b"),
        Reference("WHERE", shown_by=r"\bwhere\b"),
        Reference("WITH", BETTER, "steps in steps", shown_by=r"\bwith\b"),
    ),
    "Time": (
        Reference(
            "System.Timestamp()", note="a result has the earliest time at which it could be determined", shown_by=r"system\.timestamp"
        ),
        Reference(
            "TIMESTAMP BY",
            BETTER,
            "with OVER a query needs no PARTITION BY PartitionId; over several inputs all must have it, as there",
            shown_by=r"timestamp by",
        ),
        Reference(
            "Time skew policies",
            note="early, late, out of order: the same policies and defaults",
            cases=("time/late_and_out_of_order", "time/late_drop", "time/out_of_order_drop"),
        ),
        Reference(
            "Event delivery guarantees",
            BETTER,
            "the same bytes on every run, however it was started, stopped or killed",
            cases=("query_patterns/duplicates",),
        ),
    ),
}
"""The pages by their chapters. Pages that only list others are left out."""

ONLY_HERE = (*("acos", "asin", "atan", "atn2", "cos", "cot", "degrees", "iif", "isnull", "log", "log10", "pi", "radians", "sin", "tan"),)
"""Functions of T-SQL that Stream Analytics lacks."""

_HEAD = """\
# Stream Analytics, page by page

What becomes of each page of the reference of Stream Analytics' query language. The table is made from the functions that the
language has, and from the [cases](../../tests/cases/README.md), whose results were worked out by hand; `tidegate test` runs them.

- **same**: a script gives what the page says.
- **better**: it does, and more works here.
- **different**: something has another result, for the reason that is given.

What surrounds a query: [coming from Stream Analytics](coming-from-stream-analytics.md)."""


@cache
def scripts() -> dict[str, str]:
    """Return the script of each case that has results; those that call few functions come first."""
    found = {
        path.parent.relative_to(CASES).as_posix(): path.read_text("utf-8")
        for path in sorted(CASES.rglob("query.sql"))
        if not (path.parent / "expected.error").exists()
    }
    return dict(sorted(found.items(), key=lambda each: (len(set(re.findall(r"\w+(?=\s*\()", each[1].lower()))), each[0])))


def catalogue() -> set[str]:
    """Return every name that a script can call, in lower case."""
    from tidegate.language.expressions.functions.catalog import AGGREGATES, ANALYTICS, ANOMALIES, CALLABLE, WINDOWS
    from tidegate.language.expressions.functions.column_functions import REGISTERED

    return {*CALLABLE, *AGGREGATES, *ANALYTICS, *ANOMALIES, *WINDOWS, *(name for name in REGISTERED if re.fullmatch(r"\w+", name))}


def references() -> Iterator[Reference]:
    """Yield all pages."""
    for pages in PAGES.values():
        yield from pages


def written_page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for chapter, pages in PAGES.items():
        parts += [f"\n## {chapter}\n", "| page | here | how | cases |", "|---|---|---|---|"]
        for page in pages:
            links = ", ".join(f"[{name}](../../tests/cases/{name}/query.sql)" for name in page.found_cases()[:_SHOWN_MAX])
            parts.append(f"| {page.title.replace('|', chr(92) + '|')} | {page.verdict} | {page.note} | {links} |")
    parts += ["\n## Only here\n", f"Functions of T-SQL that Stream Analytics lacks: {', '.join(name.upper() for name in ONLY_HERE)}."]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written_page(), "utf-8")
