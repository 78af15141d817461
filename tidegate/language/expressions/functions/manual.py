"""
The manual of functions: how each is called, what it gives, and where it differs from Stream Analytics.

docs/queries/functions.md and docs/queries/stream-analytics-pages.md are written from it, and editors show it where a script calls one.
Law: every name that a script can call has one entry, and the value of an example is the one that a query gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

MANUAL_PAGE = "docs/queries/functions.md"


class Fidelity(StrEnum):
    """Whether a script of Stream Analytics gives the same here, more than there, or something else."""

    SAME = "same"
    BETTER = "better"
    DIFFERENT = "different"
    # Stream Analytics has no such function.
    ONLY_HERE = "only here"


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """One function."""

    # Its name as manuals spell it, with its arguments; what may be left out is in brackets.
    syntax: str
    # What it gives.
    meaning: str
    # A call with constants, or nothing.
    example: str = ""
    # The value of the example, as results show it.
    value: str = ""
    # How it compares to Stream Analytics.
    verdict: Fidelity = Fidelity.SAME
    # In what way, and why.
    note: str = ""
    # Its other names.
    also: tuple[str, ...] = ()
    # Where the manual says more.
    page: str = ""

    @property
    def name(self) -> str:
        """Its name as manuals spell it."""
        return self.syntax.partition("(")[0].strip()

    @property
    def names(self) -> tuple[str, ...]:
        """All names by which scripts call it, in lower case."""
        return (self.name.lower(), *self.also)


_EXACT = "the exact result, rounded once: the order of rows cannot show"
_SCORES = "the published algorithm, repeatable to the byte; Azure does not publish its own to the digit, so scores differ"
_PLANE = "in the plane of longitude and latitude, as from compatibility level 1.2 on"
_CALENDAR = "with AT TIME ZONE also in the calendar of a place"
_WINDOW = "also by the clock of a place: TimeZone"
_CHARACTERS = "positions count code points"
_LENGTHS = "a negative length counts as 0, and does not end the job"
_MILLION = "NULL beyond a million characters"
_AGGREGATES, _WINDOWS, _LOOKING = "windows.md#aggregates", "windows.md#windows", "windows.md#looking-back"
_ANOMALIES, _GEOGRAPHY = "windows.md#anomalies", "geography.md"


def _only_here(syntax: str, meaning: str, example: str = "", value: str = "") -> FunctionEntry:
    return FunctionEntry(syntax, meaning, example, value, Fidelity.ONLY_HERE)


def _aggregate(syntax: str, meaning: str, verdict: Fidelity = Fidelity.SAME, note: str = "") -> FunctionEntry:
    return FunctionEntry(syntax, meaning, verdict=verdict, note=note, page=_AGGREGATES)


def _window(
    syntax: str, meaning: str, *also: str, verdict: Fidelity = Fidelity.SAME, note: str = "", page: str = _WINDOWS
) -> FunctionEntry:
    return FunctionEntry(syntax, meaning, verdict=verdict, note=note, also=also, page=page)


FUNCTION_MANUAL: dict[str, tuple[FunctionEntry, ...]] = {
    "Aggregates": (
        _aggregate("AVG(x)", "The mean of the numbers in the group, a float; NULL without any.", Fidelity.BETTER, _EXACT),
        _aggregate("Collect([x])", "An array of the group's events as records, or of their x."),
        _aggregate(
            "CollectTop(n[, x]) OVER (ORDER BY a [DESC], ...)", 'An array of the first n events in that order: {"rank":1,"value":...}.'
        ),
        _aggregate(
            "COUNT(* | [DISTINCT] x)",
            "The number of events in the group, of those whose x is not NULL, or of different x.",
            note="DISTINCT takes no OVER",
        ),
        _aggregate("MAX(x)", "The largest value of the group; NULL does not count."),
        _aggregate("MIN(x)", "The smallest value of the group; NULL does not count."),
        _aggregate(
            "Percentile_Cont(p) OVER (ORDER BY x)", "The float at that part of the way from the first number to the last, interpolated."
        ),
        _aggregate("Percentile_Disc(p) OVER (ORDER BY x)", "The first number at which that part of all numbers has been counted."),
        _aggregate("STDEV(x)", "The standard deviation of a sample; NULL for fewer than two numbers.", Fidelity.BETTER, _EXACT),
        _aggregate("STDEVP(x)", "The standard deviation of a population; NULL for no number.", Fidelity.BETTER, _EXACT),
        _aggregate(
            "SUM(x)",
            "The sum of the numbers in the group: a bigint of bigints, with a float in it a float.",
            Fidelity.BETTER,
            f"{_EXACT}; beyond 64 bits NULL",
        ),
        _aggregate("TopOne([x]) OVER (ORDER BY a [DESC], ...)", "The first event of the group in that order as a record, or its x."),
        _aggregate("VAR(x)", "The variance of a sample; NULL for fewer than two numbers.", Fidelity.BETTER, _EXACT),
        _aggregate("VARP(x)", "The variance of a population; NULL for no number.", Fidelity.BETTER, _EXACT),
    ),
    "Windows": (
        _window(
            "HoppingWindow(unit, size, hop)",
            "Groups the events of each window of that size; one begins at each hop.",
            "hopping",
            verdict=Fidelity.BETTER,
            note=_WINDOW,
        ),
        _window(
            "SessionWindow(unit, timeout, longest) [OVER (PARTITION BY k)]",
            "Groups events that follow one another within the timeout, for at most the longest duration and a bit.",
            "session",
            page="windows.md#sessions",
        ),
        _window("SlidingWindow(unit, size)", "Groups the events of the last size, each time one enters or leaves.", "sliding"),
        _window("SnapshotWindow()", "Groups the events of one instant."),
        _window(
            "TumblingWindow(unit, size)",
            "Groups events by consecutive windows (start, end] of that size.",
            "tumbling",
            verdict=Fidelity.BETTER,
            note=_WINDOW,
        ),
        _window("Windows(Window('id', w), ...)", "Several windows side by side.", "window", page="windows.md#several-windows"),
    ),
    "Analytic functions": (
        FunctionEntry(
            "AnomalyDetection_ChangePoint(x, confidence, history) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN c])",
            'Whether x has changed for good: {"IsAnomaly":0,"Score":...}.',
            verdict=Fidelity.DIFFERENT,
            note=_SCORES,
            page=_ANOMALIES,
        ),
        FunctionEntry(
            "AnomalyDetection_SpikeAndDip(x, confidence, history, mode) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN c])",
            "Whether x lies far outside of its history: {\"IsAnomaly\":0,\"Score\":...}; mode: 'spikes', 'dips' or 'spikesanddips'.",
            verdict=Fidelity.DIFFERENT,
            note=_SCORES,
            page=_ANOMALIES,
        ),
        FunctionEntry(
            "ISFIRST(unit, n) [OVER ([PARTITION BY k] [WHEN c])]",
            "1 for the first event of each interval of that length that meets c, else 0.",
            page=_LOOKING,
        ),
        FunctionEntry(
            "LAG(x[, offset[, default]]) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN c])",
            "x of the event before this one, or of the one offset events before.",
            page=_LOOKING,
        ),
        FunctionEntry(
            "LAST(x[, default]) OVER ([PARTITION BY k] LIMIT DURATION(unit, n) [WHEN c])",
            "x of the last event that meets c, this one included.",
            page=_LOOKING,
        ),
    ),
    "Choice and types": (
        FunctionEntry("COALESCE(x, ...)", "The first argument that is not NULL.", "COALESCE(NULL, 2, 3)", "2"),
        FunctionEntry("GetType(x)", "The name of the value's type; NULL for NULL.", "GetType(1.5)", '"float"'),
        _only_here("IIF(condition, x, y)", "x if the condition holds, else y.", "IIF(2 > 1, 'yes', 'no')", '"yes"'),
        _only_here("ISNULL(x, y)", "x, or y if x is NULL.", "ISNULL(NULL, 'none')", '"none"'),
        FunctionEntry("NULLIF(x, y)", "NULL if x equals y, else x.", "NULLIF(0, 0)", "null"),
    ),
    "Arrays and records": (
        FunctionEntry(
            "GetArrayElement(array, i)",
            "The element at i, counted from 0; NULL outside of the array.",
            "GetArrayElement(CAST('[4,5]' AS array), 1)",
            "5",
        ),
        FunctionEntry("GetArrayLength(array)", "The number of elements.", "GetArrayLength(CAST('[4,5]' AS array))", "2"),
        FunctionEntry(
            "GetRecordProperties(record)",
            "An array of the record's members; after CROSS APPLY a row for each.",
            "GetRecordProperties(CAST('{\"a\":1}' AS record))",
            '[{"PropertyName":"a","PropertyValue":1}]',
            Fidelity.BETTER,
            "with OUTER APPLY too",
        ),
        FunctionEntry(
            "GetRecordPropertyValue(record, name)",
            "The member of that name, which may differ from row to row.",
            "GetRecordPropertyValue(CAST('{\"a\":1}' AS record), 'a')",
            "1",
        ),
        FunctionEntry("JSON_PARSE(text)", "The record in a text; NULL for everything else.", "JSON_PARSE('{\"a\":1}')", '{"a":1}'),
    ),
    "Dates and times": (
        FunctionEntry(
            "DATEADD(unit, n, time)",
            "The time n units later.",
            "DATEADD(hour, -1, '2001-02-03T04:05:06Z')",
            '"2001-02-03T03:05:06Z"',
            Fidelity.BETTER,
            _CALENDAR,
        ),
        FunctionEntry(
            "DATEDIFF(unit, from, to)",
            "How many boundaries of that unit lie between two times; in ON the bound of a join.",
            "DATEDIFF(hour, '2001-02-03T04:59:00Z', '2001-02-03T05:01:00Z')",
            "1",
            Fidelity.BETTER,
            _CALENDAR,
        ),
        FunctionEntry("DATENAME(unit, time)", "A part of a time as text, in English.", "DATENAME(weekday, '2001-02-03')", '"Saturday"'),
        FunctionEntry("DATEPART(unit, time)", "A part of a time as bigint.", "DATEPART(quarter, '2001-08-03')", "3"),
        FunctionEntry(
            "DATETIMEFROMPARTS(year, month, day, hour, minute, second, millisecond)",
            "The time of these parts.",
            "DATETIMEFROMPARTS(2001, 2, 3, 4, 5, 6, 7)",
            '"2001-02-03T04:05:06.007Z"',
            Fidelity.BETTER,
            "parts that are no date make the row a dead letter",
        ),
        FunctionEntry("DAY(time)", "The day of the month.", "DAY('2001-02-03')", "3"),
        FunctionEntry("MONTH(time)", "The month, 1 to 12.", "MONTH('2001-02-03')", "2"),
        FunctionEntry("YEAR(time)", "The year.", "YEAR('2001-02-03')", "2001"),
    ),
    "Geography": (
        FunctionEntry("CreateLineString(p1, p2, ...)", "The line through these points.", page=_GEOGRAPHY),
        FunctionEntry("CreatePoint(latitude, longitude)", "A point, in degrees: the latitude first.", page=_GEOGRAPHY),
        FunctionEntry(
            "CreatePolygon(p1, p2, ..., p1)",
            "A polygon without holes; the last point repeats the first.",
            verdict=Fidelity.DIFFERENT,
            note="the order of points does not matter: the inside is what they enclose; there a clockwise ring means the rest of the globe",
            page=_GEOGRAPHY,
        ),
        FunctionEntry(
            "ST_DISTANCE(a, b)",
            "Metres along the geodesic between two points; 0 if one of the two is a line or a polygon.",
            verdict=Fidelity.DIFFERENT,
            note="a geodesic of WGS-84, rounded to the millimetre; Azure's differs by about as much",
            page=_GEOGRAPHY,
        ),
        FunctionEntry("ST_INTERSECTS(a, b)", "1 if a and b have a point in common, edges included, else 0.", note=_PLANE, page=_GEOGRAPHY),
        FunctionEntry("ST_OVERLAPS(a, b)", "1 if a and b share an area and neither holds the other, else 0.", note=_PLANE, page=_GEOGRAPHY),
        FunctionEntry("ST_WITHIN(a, b)", "1 if a lies within b, else 0.", note=_PLANE, page=_GEOGRAPHY),
    ),
    "Numbers": (
        FunctionEntry("ABS(x)", "The number without its sign.", "ABS(-2)", "2"),
        _only_here("ACOS(x)", "The angle whose cosine is x, in radians; NULL outside -1 to 1.", "ACOS(1)", "0.0"),
        _only_here("ASIN(x)", "The angle whose sine is x, in radians; NULL outside -1 to 1.", "ASIN(0)", "0.0"),
        _only_here("ATAN(x)", "The angle whose tangent is x, in radians.", "ATAN(0)", "0.0"),
        _only_here("ATN2(y, x)", "The angle of the point (x, y), in radians.", "ATN2(0, 1)", "0.0"),
        FunctionEntry("CEILING(x)", "The smallest whole number not below x.", "CEILING(1.2)", "2.0"),
        _only_here("COS(x)", "The cosine of an angle in radians.", "COS(0)", "1.0"),
        _only_here("COT(x)", "The cotangent of an angle in radians; NULL for 0.", "COT(0)", "null"),
        _only_here("DEGREES(x)", "Radians as degrees.", "DEGREES(PI())", "180.0"),
        FunctionEntry("EXP(x)", "e to the power of x, a float.", "EXP(0)", "1.0"),
        FunctionEntry("FLOOR(x)", "The largest whole number not above x.", "FLOOR(1.8)", "1.0"),
        _only_here("LOG(x)", "The natural logarithm; NULL for 0 and below.", "LOG(1)", "0.0"),
        _only_here("LOG10(x)", "The logarithm to the base 10; NULL for 0 and below.", "LOG10(1000)", "3.0"),
        _only_here("PI()", "The number pi.", "PI()", "3.141592653589793"),
        FunctionEntry(
            "POWER(x, y)",
            "x to the power of y; of a bigint a bigint, towards zero, NULL beyond 64 bits.",
            "POWER(2, 10)",
            "1024",
        ),
        _only_here("RADIANS(x)", "Degrees as radians.", "RADIANS(0)", "0.0"),
        FunctionEntry(
            "ROUND(x[, places])",
            "The number rounded to that many places behind the point, negative ones before it.",
            "ROUND(2.345, 1)",
            "2.3",
        ),
        FunctionEntry("SIGN(x)", "-1, 0 or 1.", "SIGN(-7)", "-1"),
        _only_here("SIN(x)", "The sine of an angle in radians.", "SIN(0)", "0.0"),
        FunctionEntry("SQRT(x)", "The square root, a float.", "SQRT(9)", "3.0", note="of a negative number NULL"),
        FunctionEntry("SQUARE(x)", "The number times itself, a float.", "SQUARE(3)", "9.0"),
        _only_here("TAN(x)", "The tangent of an angle in radians.", "TAN(0)", "0.0"),
    ),
    "Special forms": (
        FunctionEntry(
            "CAST(x AS type)",
            "x as a value of another type; a value that cannot be converted makes its row a dead letter.",
            "CAST('12' AS bigint)",
            "12",
            Fidelity.BETTER,
            "a value that cannot be converted is a dead letter, and the job goes on",
            page="expressions.md#types",
        ),
        _only_here("CONVERT(type, x)", "The same with the type first.", "CONVERT(bigint, '12')", "12"),
        FunctionEntry(
            "GetArrayElements(array)",
            "After CROSS APPLY or OUTER APPLY: a row for each element, with ArrayIndex and ArrayValue.",
            verdict=Fidelity.BETTER,
            note="with OUTER APPLY too",
            page="expressions.md#records-and-arrays",
        ),
        FunctionEntry(
            "GetMetadataPropertyValue(input, 'property')",
            "A property of the record outside of its payload: EventId, [EventHub].[Offset], [User].[header] and others.",
            verdict=Fidelity.DIFFERENT,
            note="EventId, offset, partition, arrival; headers as `User`, IoTHub from the payload; blobs, EventHub as a record are refused",
            page="expressions.md#metadata",
        ),
        FunctionEntry(
            "System.Timestamp()",
            "The time of the event after the policies; in a grouped query the end of the window.",
            note="a result has the earliest time at which it could be determined",
            page="windows.md#windows",
        ),
        FunctionEntry(
            "TRY_CAST(x AS type)", "x as a value of another type, NULL if it cannot be converted.", "TRY_CAST('a' AS bigint)", "null"
        ),
        _only_here("TRY_CONVERT(type, x)", "The same with the type first.", "TRY_CONVERT(bigint, 'a')", "null"),
    ),
    "Texts": (
        FunctionEntry(
            "CHARINDEX(sought, text[, start])",
            "The position of the first occurrence, from 1; 0 for none.",
            "CHARINDEX('lan', 'Atlanta')",
            "3",
            note=_CHARACTERS,
        ),
        FunctionEntry("CONCAT(x, y, ...)", "The arguments one behind the other; NULL counts as empty.", "CONCAT('a', 1, NULL)", '"a1"'),
        FunctionEntry(
            "CONCAT_WS(separator, x, y, ...)",
            "The same with a separator between; NULL is left out.",
            "CONCAT_WS('-', 'a', NULL, 1)",
            '"a-1"',
        ),
        FunctionEntry("LEFT(text, n)", "The first n characters.", "LEFT('Atlanta', 2)", '"At"', Fidelity.BETTER, _LENGTHS),
        FunctionEntry("LEN(text)", "The number of characters, without spaces at the end.", "LEN('ab  ')", "2"),
        FunctionEntry("LOWER(text)", "The text in small letters.", "LOWER('AtL')", '"atl"'),
        FunctionEntry("LTRIM(text)", "The text without white space at its beginning.", "LTRIM('  a ')", '"a "'),
        FunctionEntry("NCHAR(n)", "The character of that code point; NULL if there is none.", "NCHAR(8364)", '"€"'),
        FunctionEntry(
            "PATINDEX(pattern, text)",
            "The position of the first match of a pattern as of LIKE, from 1; 0 for none.",
            "PATINDEX('%[l-n]%', 'Atlanta')",
            "3",
            Fidelity.BETTER,
            "the pattern may be a column",
        ),
        FunctionEntry(
            "REGEXMATCH(text, pattern)",
            "The position of the first match of a regular expression, from 1; 0 for none. Cases are ignored.",
            "REGEXMATCH('Atlanta', '[l-n]A')",
            "3",
            Fidelity.DIFFERENT,
            "linear time: look-ahead and back references are refused, and so is a pattern that is none; there it gives 0",
        ),
        FunctionEntry("REPLACE(text, sought, other)", "The text with each occurrence replaced.", "REPLACE('abab', 'b', 'c')", '"acac"'),
        FunctionEntry("REPLICATE(text, n)", "The text n times.", "REPLICATE('ab', 2)", '"abab"', note=_MILLION),
        FunctionEntry("REVERSE(text)", "The text from its end.", "REVERSE('abc')", '"cba"'),
        FunctionEntry("RIGHT(text, n)", "The last n characters.", "RIGHT('Atlanta', 2)", '"ta"', Fidelity.BETTER, _LENGTHS),
        FunctionEntry("RTRIM(text)", "The text without white space at its end.", "RTRIM(' a  ')", '" a"'),
        FunctionEntry("SPACE(n)", "n spaces.", "SPACE(2)", '"  "', note=_MILLION),
        FunctionEntry(
            "STUFF(text, start, n, other)",
            "The text with n characters from start on replaced.",
            "STUFF('abcd', 2, 2, 'X')",
            '"aXd"',
            verdict=Fidelity.BETTER,
            note=f"{_CHARACTERS}; {_LENGTHS}",
        ),
        FunctionEntry(
            "SUBSTRING(text, start, n)",
            "n characters from start on, counted from 1.",
            "SUBSTRING('abcd', 2, 2)",
            '"bc"',
            Fidelity.BETTER,
            _LENGTHS,
        ),
        FunctionEntry(
            "TRANSLATE(text, from, to)",
            "The text with each character of from as the one at its place in to.",
            "TRANSLATE('abc', 'ac', 'xy')",
            '"xby"',
        ),
        FunctionEntry("TRIM(text)", "The text without white space at both ends.", "TRIM('  a ')", '"a"'),
        FunctionEntry("UNICODE(text)", "The code point of the first character.", "UNICODE('€')", "8364"),
        FunctionEntry("UPPER(text)", "The text in capitals.", "UPPER('AtL')", '"ATL"'),
    ),
}
"""Every function by its chapter, in the order of names."""
FORMS = frozenset(name for entry in FUNCTION_MANUAL["Special forms"] for name in entry.names)
"""What looks like a function in a script and has a grammar of its own."""


def function_entries() -> Iterator[FunctionEntry]:
    """Yield every function."""
    for entries in FUNCTION_MANUAL.values():
        yield from entries


@cache
def _by_name() -> dict[str, FunctionEntry]:
    return {name: entry for entry in function_entries() for name in entry.names}


def find_function(name: str) -> FunctionEntry | None:
    """Return the entry of the function that scripts call *name*, in any case; None if the manual has none."""
    return _by_name().get(name.lower())


def functions_page() -> str:
    """Return the text of docs/queries/functions.md; a test checks the file."""
    parts = [_HEAD]
    for chapter, entries in FUNCTION_MANUAL.items():
        parts += [f"\n## {chapter}\n", "| function | meaning | example |", "|---|---|---|"]
        for entry in entries:
            example = f"`{entry.example}` is `{entry.value}`" if entry.example else ""
            # A text with an upright stroke would end the cell.
            cells = (f"`{entry.syntax}`", _meaning(entry), example)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def _meaning(entry: FunctionEntry) -> str:
    also = f" Also {', '.join(name.capitalize() for name in entry.also)}." if entry.also else ""
    more = f" [More]({entry.page})" if entry.page else ""
    return f"{entry.meaning}{also}{more}"


_HEAD = """\
# Functions

Every function that a script can call, with what it gives. Editors show these lines where a script calls a function
([editors.md](editors.md)). Names ignore case. What may be left out is in brackets.

- Operators, `CASE`, `CAST` and what happens without a result: [expressions](expressions.md).
- Functions of your own: [in JavaScript](javascript.md), [in Python](extending.md).
- Against Azure's: [Stream Analytics, page by page](stream-analytics-pages.md).

NULL in, NULL out, unless the line says otherwise."""
