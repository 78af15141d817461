"""
Functions over datetimes, as DuckDB expressions over int64 microseconds since 1970 (UTC).

DATEADD adds months, quarters and years by the calendar (limited to the last day of the month) and other units by a fixed length; a result
outside the years 1 to 9999 is NULL. DATEDIFF counts the unit boundaries between two instants, as T-SQL does: one microsecond across
midnight is a day. Weeks begin on Sunday in every locale.

>>> from tidegate.testing import run_query
>>> script = "SELECT DATEADD(month, 1, t) AS later, DATEDIFF(day, t, '2001-02-01') AS days INTO out FROM a"
>>> run_query(script, {"a": [{"t": "2001-01-31T23:00:00Z"}]}).rows
[{'later': '2001-02-28T23:00:00Z', 'days': 1}]
"""

from __future__ import annotations

from collections.abc import Sequence

from ordering.ticks import DAY_US, MILLISECOND_US, SECOND_US
from tidegate.language.expressions.functions.conversions import TypedSql, convert
from tidegate.language.expressions.functions.definition import Function, Rule, integer, number
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import UNITS_US

WEEK_US = 7 * DAY_US
_FIXED_US = {**UNITS_US, "week": WEEK_US, "weekday": DAY_US, "dayofyear": DAY_US}
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
_MONTHS_MAX = 120_000  # adding more months than this leaves the years 1 to 9999 from anywhere
# The units that DATENAME writes as English names; others are written as numbers.
_NAMED = {"month": "%B", "weekday": "%A"}
_SUNDAY_US = 4 * DAY_US  # 1970-01-01 was a Thursday: four days after a Sunday

_SPELLINGS = {
    "year": "yy yyyy",
    "quarter": "qq q",
    "month": "mm m",
    "dayofyear": "dy y",
    "day": "dd d",
    "week": "wk ww",
    "weekday": "dw w",
    "hour": "hh",
    "minute": "mi n",
    "second": "ss s",
    "millisecond": "ms",
    "microsecond": "mcs",
}
# The unit of each word: abbreviations included, and plurals, which Stream Analytics' own examples have.
DATE_PARTS = {name: unit for unit, short in _SPELLINGS.items() for name in (unit, f"{unit}s", *short.split())}


def _datetime(value: TypedSql) -> str:
    return convert(value, Kind.DATETIME)


def _dateadd(args: Sequence[TypedSql]) -> TypedSql:
    unit, amount, moment = args[0].sql, number(args[1]), _datetime(args[2])
    # A fraction is ignored, as in T-SQL; 128 bits hold every product of a bigint and a unit.
    count = f"TRY_CAST(trunc({amount.sql}) AS BIGINT)" if amount.kind is Kind.FLOAT else amount.sql
    if unit in _FIXED_US:
        return TypedSql(f"datetime_of({moment} + CAST({count} AS HUGEINT) * {_FIXED_US[unit]})", Kind.DATETIME)
    months = f"CAST({count} AS HUGEINT) * {_MONTHS[unit]}"
    near = f"CAST(CASE WHEN abs({months}) <= {_MONTHS_MAX} THEN {months} END AS INTEGER)"
    return TypedSql(f"datetime_of(epoch_us(make_timestamp({moment}) + to_months({near})))", Kind.DATETIME)


def _months(moment: str) -> str:
    return f"(extract('year' FROM make_timestamp({moment})) * 12 + extract('month' FROM make_timestamp({moment})) - 1)"


def _boundaries(unit: str, moment: str) -> str:
    """Return the number of boundaries of *unit* from a fixed early instant to *moment*."""
    if unit in _MONTHS:
        return f"spans({_months(moment)}, {_MONTHS[unit]})"
    return f"spans({moment} + {_SUNDAY_US if unit == 'week' else 0}, {_FIXED_US[unit]})"


def fixed_unit(unit: str) -> tuple[int, int] | None:
    """Return a unit's length and the distance from 1970 back to the start of such a unit, microseconds; None if its length varies."""
    return None if unit in _MONTHS else (_FIXED_US[unit], _SUNDAY_US if unit == "week" else 0)


def _datediff(args: Sequence[TypedSql]) -> TypedSql:
    unit, start, end = args[0].sql, _datetime(args[1]), _datetime(args[2])
    return TypedSql(f"CAST({_boundaries(unit, end)} - {_boundaries(unit, start)} AS BIGINT)", Kind.BIGINT)


def _part(unit: str, moment: str) -> str:
    stamp = f"make_timestamp({moment})"
    if unit == "week":
        first_day = f"epoch_us(date_trunc('year', {stamp}))"
        return f"{_boundaries('week', moment)} - {_boundaries('week', first_day)} + 1"
    if unit == "weekday":
        return f"extract('dow' FROM {stamp}) + 1"
    if unit in ("millisecond", "microsecond"):
        return f"spans({moment} - spans({moment}, {SECOND_US}) * {SECOND_US}, {_FIXED_US[unit]})"
    return f"extract('{'doy' if unit == 'dayofyear' else unit}' FROM {stamp})"


def _datepart(args: Sequence[TypedSql]) -> TypedSql:
    return TypedSql(f"CAST({_part(args[0].sql, _datetime(args[1]))} AS BIGINT)", Kind.BIGINT)


def _datename(args: Sequence[TypedSql]) -> TypedSql:
    unit, moment = args[0].sql, _datetime(args[1])
    if unit in _NAMED:
        return TypedSql(f"strftime(make_timestamp({moment}), '{_NAMED[unit]}')", Kind.NVARCHAR)
    return TypedSql(f"CAST(CAST({_part(unit, moment)} AS BIGINT) AS VARCHAR)", Kind.NVARCHAR)


def _named_part(unit: str) -> Rule:
    return lambda args: TypedSql(f"CAST({_part(unit, _datetime(args[0]))} AS BIGINT)", Kind.BIGINT)


def _from_parts(args: Sequence[TypedSql]) -> TypedSql:
    year, month, day, hour, minute, second, millisecond = map(integer, args)
    timestamp = f"make_timestamp({year}, {month}, {day}, {hour}, {minute}, CAST({second} AS DOUBLE))"
    # make_timestamp checks the range of the other parts, but not of the year, the second and the millisecond.
    is_valid = f"{year} BETWEEN 1 AND 9999 AND {millisecond} BETWEEN 0 AND 999 AND {second} BETWEEN 0 AND 59"
    failure = "CAST('' AS BIGINT)"
    all_known = " AND ".join(f"{part} IS NOT NULL" for part in (year, month, day, hour, minute, second, millisecond))
    value = f"CASE WHEN {is_valid} THEN epoch_us({timestamp}) + {millisecond} * {MILLISECOND_US} ELSE {failure} END"
    return TypedSql(f"CASE WHEN {all_known} THEN {value} END", Kind.DATETIME)


# The functions over datetimes, by name in lower case.
DATE_FUNCTIONS: dict[str, Function] = {
    "dateadd": Function(3, 3, _dateadd, Kind.DATETIME),
    "datediff": Function(3, 3, _datediff, Kind.BIGINT),
    "datepart": Function(2, 2, _datepart, Kind.BIGINT),
    "datename": Function(2, 2, _datename, Kind.NVARCHAR),
    "year": Function(1, 1, _named_part("year"), Kind.BIGINT),
    "month": Function(1, 1, _named_part("month"), Kind.BIGINT),
    "day": Function(1, 1, _named_part("day"), Kind.BIGINT),
    "datetimefromparts": Function(7, 7, _from_parts, Kind.DATETIME),
}
# The functions whose first argument is a unit.
DATE_PART_FUNCTIONS = frozenset({"dateadd", "datediff", "datename", "datepart"})
