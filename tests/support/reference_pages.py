"""
The pages of the reference of Stream Analytics' language, and what becomes of each here: docs/queries/stream-analytics-pages.md.

``python tests/support/reference_pages.py`` writes the page, and docs/queries/functions.md, which is the manual of functions. Functions are
looked up in that manual, cases in tests/cases, so the page names nothing that is not there.
``tests/docs/test_stream_analytics_pages.py`` fails if a function of the language is on no page and in no list, if a page has no case, or if
a page is not the one that is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tidegate.language.expressions.functions.manual import FORMS, Fidelity, find_function, function_entries, functions_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "queries" / "stream-analytics-pages.md"
FUNCTIONS = ROOT / "docs" / "queries" / "functions.md"
CASES = ROOT / "tests" / "cases"
EXAMPLES = "reference_pages/"
"""The room of the cases that are the pages' own examples, in our words and with our data."""
SAME, BETTER, DIFFERENT = Fidelity.SAME, Fidelity.BETTER, Fidelity.DIFFERENT
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


def _function(title: str) -> Reference:
    entry = find_function(title)
    assert entry is not None, f"{title} is not in the manual of functions"
    # The cases of what has a grammar of its own are told by its name and a bracket as well.
    shown_by = rf"{re.escape(entry.name)}\s*\(" if entry.names[0] in FORMS else ""
    return Reference(entry.name, entry.verdict, entry.note, () if shown_by else entry.names, shown_by)


PAGES: dict[str, tuple[Reference, ...]] = {
    "Aggregates": (
        _function("AVG"),
        _function("COUNT"),
        _function("Collect"),
        _function("CollectTop"),
        _function("MAX"),
        _function("MIN"),
        _function("Percentile_Cont"),
        _function("Percentile_Disc"),
        _function("STDEV"),
        _function("STDEVP"),
        _function("SUM"),
        _function("TopOne"),
        _function("VAR"),
        _function("VARP"),
    ),
    "Analytic functions": (
        _function("AnomalyDetection_SpikeAndDip"),
        _function("AnomalyDetection_ChangePoint"),
        _function("ISFIRST"),
        _function("LAG"),
        _function("LAST"),
    ),
    "Arrays and records": (
        _function("GetArrayLength"),
        _function("GetArrayElement"),
        _function("GetArrayElements"),
        _function("GetRecordProperties"),
        _function("GetRecordPropertyValue"),
        _function("JSON_PARSE"),
    ),
    "Bitwise operators": tuple(
        Reference(f"`{sign}`", note="of bigints; of bits a bit", cases=("scalars/bitwise", "scalars/bitwise_types"))
        for sign in ("&", "|", "^", "~")
    ),
    "Conversions": (
        _function("CAST"),
        _function("GetType"),
        _function("TRY_CAST"),
    ),
    "Dates and times": (
        _function("DATEADD"),
        _function("DATEDIFF"),
        _function("DATENAME"),
        _function("DATEPART"),
        _function("DATETIMEFROMPARTS"),
        _function("DAY"),
        _function("MONTH"),
        _function("YEAR"),
    ),
    "Geography": (
        _function("CreateLineString"),
        _function("CreatePoint"),
        _function("CreatePolygon"),
        _function("ST_DISTANCE"),
        _function("ST_OVERLAPS"),
        _function("ST_INTERSECTS"),
        _function("ST_WITHIN"),
    ),
    "Metadata": (_function("GetMetadataPropertyValue"),),
    "Mathematics": (
        _function("ABS"),
        _function("CEILING"),
        _function("EXP"),
        _function("FLOOR"),
        _function("POWER"),
        _function("ROUND"),
        _function("SIGN"),
        _function("SQUARE"),
        _function("SQRT"),
    ),
    "Texts": (
        _function("CHARINDEX"),
        _function("CONCAT"),
        _function("CONCAT_WS"),
        _function("LEFT"),
        _function("LEN"),
        _function("LOWER"),
        _function("LTRIM"),
        _function("NCHAR"),
        _function("PATINDEX"),
        _function("REGEXMATCH"),
        _function("REPLACE"),
        _function("REPLICATE"),
        _function("REVERSE"),
        _function("RIGHT"),
        _function("RTRIM"),
        _function("SPACE"),
        _function("STUFF"),
        _function("SUBSTRING"),
        _function("TRANSLATE"),
        _function("TRIM"),
        _function("UNICODE"),
        _function("UPPER"),
    ),
    "Windows": (
        _function("HoppingWindow"),
        _function("SessionWindow"),
        _function("SlidingWindow"),
        replace(_function("SnapshotWindow"), cases=("reference_pages/snapshots", "windows/snapshot")),
        _function("TumblingWindow"),
        _function("Windows"),
    ),
    "Language": (
        Reference(
            "Data types", note="a bit is a bit, as from compatibility level 1.2 on", cases=("reference_pages/casts", "projections/kinds")
        ),
        Reference("APPLY", BETTER, "several in a row, and over a whole event", shown_by=r"\b(cross|outer) apply\b"),
        Reference("CASE", shown_by=r"\bcase\b"),
        _function("COALESCE"),
        Reference("CREATE TABLE", note="a row that does not fit is a dead letter", shown_by=r"create table"),
        Reference("FROM", cases=("reference_pages/clauses", "compose/subquery")),
        Reference("GROUP BY", shown_by=r"group by"),
        Reference("HAVING", shown_by=r"\bhaving\b"),
        Reference(
            "INTO",
            BETTER,
            "several statements may write into one output",
            cases=("reference_pages/clauses", "compose/default_output", "compose/one_output_twice"),
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
            cases=("reference_pages/reference_data", "joins/reference_versions"),
        ),
        Reference("SELECT", cases=("reference_pages/clauses", "projections/star")),
        Reference("UNION", shown_by=r"\bunion\b"),
        Reference("WHERE", shown_by=r"\bwhere\b"),
        Reference("WITH", BETTER, "steps in steps", shown_by=r"\bwith\b"),
    ),
    "Time": (
        _function("System.Timestamp"),
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

ONLY_HERE = tuple(entry.names[0] for entry in function_entries() if entry.verdict is Fidelity.ONLY_HERE)
"""Functions of T-SQL that Stream Analytics lacks."""

_HEAD = """\
# Stream Analytics, page by page

What becomes of each page of the reference of Stream Analytics' query language. The table is made from the functions that the
language has, and from the [cases](../../tests/cases/README.md), whose results were worked out by hand; `tidegate test` runs them.
Every example of those pages is a case, with other names and events: in `reference_pages`, in `query_patterns` those of the page on common
patterns, in `patterns`, `geography` and `scalars` those of their chapters. Where an example of a page has a slip, such as a comma before
FROM, the case has what is meant.

- **same**: a script gives what the page says.
- **better**: it does, and more works here.
- **different**: something has another result, for the reason that is given.

What surrounds a query: [coming from Stream Analytics](coming-from-stream-analytics.md)."""


@cache
def scripts() -> dict[str, str]:
    """Return the script of each case that has results: first those of the pages' examples, then those that call few functions."""
    found = {
        path.parent.relative_to(CASES).as_posix(): path.read_text("utf-8")
        for path in sorted(CASES.rglob("query.sql"))
        if not (path.parent / "expected.error").exists()
    }
    return dict(sorted(found.items(), key=lambda each: (not each[0].startswith(EXAMPLES), _functions_called(each[1]), each[0])))


def _functions_called(script: str) -> int:
    return len(set(re.findall(r"\w+(?=\s*\()", script.lower())))


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
    FUNCTIONS.write_text(functions_page(), "utf-8")
