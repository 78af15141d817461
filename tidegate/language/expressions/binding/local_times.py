"""
Binding of local times: what functions make of ``x AT TIME ZONE 'Europe/Berlin'``.

A local time is a datetime of which the script says by which clock it is read. It stays the same instant: it is compared, joined, grouped
and ordered as one, whatever its zone. Its zone matters

- to the functions over datetimes: parts, names and calendar units (a day and longer) are those of the clock; an hour and shorter units pass
  alike everywhere;
- where it becomes a text: as a column of a result, by CAST, and as an argument of other functions. The text has the offset from UTC.

COALESCE, CASE and the like keep a zone that all their values have. Law: the zone is known when the script is bound; afterwards each
expression says by itself what it computes (:class:`~tidegate.language.expressions.tree.Zoned`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from ordering.ticks import DAY_US
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.functions import column_functions
from tidegate.language.expressions.functions.dates import fixed_unit
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.errors import Source
from tidegate.language.expressions.tree import (
    Aggregate,
    Analytic,
    Call,
    Case,
    CaseFolded,
    Cast,
    DatePart,
    Expr,
    Literal,
    Required,
    Requirement,
    Zoned,
    ZoneForm,
)
from tidegate.language.time_zones.database import find_zone, suggest_zone
from tidegate.language.time_zones.zone import Zone

ZONE_EXAMPLE = "System.Timestamp() AT TIME ZONE 'Europe/Berlin'"
_PARTS = frozenset({"datepart", "datename", "year", "month", "day"})
# Functions whose value is one of their arguments, and the first such argument.
_CHOOSING = {"coalesce": 0, "isnull": 0, "nullif": 0, "iif": 1}
# Operations to which a local time is the instant that it is.
_OF_INSTANTS = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "between", "is null"})
_ROW_VALUES = frozenset({"min", "max", "topone"})
_COLLECTING = frozenset({"collect", "collecttop"})


class ZonesDiffer(Exception):
    """Two local times of different zones meet where one clock must count."""


def zone_of(expr: Expr) -> Zone | None:
    """Return the zone of a local time; None if *expr* is none."""
    if isinstance(expr, Zoned):
        return expr.zone if expr.form in (ZoneForm.TIME, ZoneForm.MOMENT) else None
    if isinstance(expr, Aggregate) and expr.function in _ROW_VALUES and expr.arg is not None:
        return zone_of(expr.arg)
    if isinstance(expr, Analytic) and expr.function in ("lag", "last") and expr.arg is not None:
        return _common_zone([expr.arg, *([] if expr.default is None else [expr.default])])
    if isinstance(expr, Analytic) and expr.aggregate is not None:
        return zone_of(expr.aggregate)
    return None


def without_zone(expr: Expr) -> Expr:
    """Return the instant of a local time; other expressions as they are."""
    return expr.arg if isinstance(expr, Zoned) and expr.form is ZoneForm.TIME else expr


def at_zone(expr: Expr, zone: Zone, offset: int) -> Expr:
    """Return the local time of a value in a zone. A value that may be no datetime is converted."""
    moment = without_zone(expr)
    moment = moment if static_kind(moment) in (Kind.DATETIME, Kind.NULL) else Cast(moment, Kind.DATETIME, offset=moment.offset)
    return Zoned(moment, zone, ZoneForm.TIME, offset=offset)


def as_column(expr: Expr, *, is_result: bool) -> Expr:
    """Return what SELECT makes of a value: a local time is a text in a result, and keeps its zone in a step."""
    zone = zone_of(expr)
    return expr if zone is None else Zoned(without_zone(expr), zone, ZoneForm.TEXT if is_result else ZoneForm.TIME, offset=expr.offset)


def collect_texts(aggregate: Aggregate) -> Aggregate:
    """Return an aggregate in whose arrays local times are texts, as in a result."""
    if aggregate.function not in _COLLECTING or aggregate.arg is None:
        return aggregate
    return replace(aggregate, arg=as_column(aggregate.arg, is_result=True))


def settle_zones(expr: Expr) -> Expr:
    """
    Return what the outermost operation of *expr* computes if arguments of it are local times: an expression over instants and readings of
    clocks, perhaps a local time itself. Raises ZonesDiffer: they are of several zones.
    """
    if isinstance(expr, Zoned) or not any(zone_of(part) for part in expr.parts):
        return expr
    if isinstance(expr, Cast):
        zone = zone_of(expr.arg)
        if expr.kind is Kind.NVARCHAR and zone is not None:
            return Zoned(without_zone(expr.arg), zone, ZoneForm.TEXT, offset=expr.offset)
        return replace(expr, arg=without_zone(expr.arg))
    if isinstance(expr, Case):
        values = [*(value for _, value in expr.whens), expr.otherwise]
        whens = tuple((condition, without_zone(value)) for condition, value in expr.whens)
        return _in_zone(replace(expr, whens=whens, otherwise=without_zone(expr.otherwise)), _common_zone(values))
    if isinstance(expr, Required):
        instant = replace(expr, arg=without_zone(expr.arg))
        return _in_zone(instant, zone_of(expr.arg)) if expr.requirement is Requirement.COMPARABLE else instant
    if isinstance(expr, CaseFolded):
        return replace(expr, arg=as_column(expr.arg, is_result=True))
    if not isinstance(expr, Call) or expr.name in column_functions.REGISTERED:
        return expr
    if expr.name in _PARTS:
        return replace(expr, args=tuple(map(_reading, expr.args)))
    if expr.name == "dateadd":
        return _add(expr)
    if expr.name == "datediff":
        return _difference(expr)
    if expr.name in _OF_INSTANTS:
        return replace(expr, args=tuple(map(without_zone, expr.args)))
    if expr.name in _CHOOSING:
        chosen = expr.args[_CHOOSING[expr.name] :] if expr.name != "nullif" else expr.args[:1]
        return _in_zone(replace(expr, args=tuple(map(without_zone, expr.args))), _common_zone(chosen))
    return replace(expr, args=tuple(as_column(arg, is_result=True) for arg in expr.args))


def _common_zone(values: Iterable[Expr]) -> Zone | None:
    """Return the zone that all values have; None if one has none."""
    zones = {zone_of(value) for value in values if not (isinstance(value, Literal) and value.kind is Kind.NULL)}
    return zones.pop() if len(zones) == 1 else None


def _in_zone(expr: Expr, zone: Zone | None) -> Expr:
    return expr if zone is None else Zoned(expr, zone, ZoneForm.TIME, offset=expr.offset)


def _reading(expr: Expr) -> Expr:
    zone = zone_of(expr)
    return expr if zone is None else Zoned(without_zone(expr), zone, ZoneForm.CLOCK, offset=expr.offset)


def _is_of_calendar(unit: Expr) -> bool:
    """Return whether the length of a unit, or where it begins, is a matter of the calendar."""
    if not isinstance(unit, DatePart):
        return False
    fixed = fixed_unit(unit.unit)
    return fixed is None or fixed[0] >= DAY_US


def _add(expr: Call) -> Expr:
    unit, count, time = expr.args
    zone = zone_of(time)
    if zone is None:
        return expr
    if _is_of_calendar(unit):
        return Zoned(replace(expr, args=(unit, count, _reading(time))), zone, ZoneForm.MOMENT, offset=expr.offset)
    return _in_zone(replace(expr, args=(unit, count, without_zone(time))), zone)


def _difference(expr: Call) -> Expr:
    unit, start, end = expr.args
    zones = {zone for zone in (zone_of(start), zone_of(end)) if zone is not None}
    if not _is_of_calendar(unit):
        return replace(expr, args=(unit, without_zone(start), without_zone(end)))
    if len(zones) > 1:
        raise ZonesDiffer
    zone = zones.pop()
    return replace(expr, args=(unit, *(_reading(at_zone(time, zone, time.offset)) for time in (start, end))))


def bind_zone(node: exp.Expr, source: Source, example: str) -> Zone:
    """Return the zone that a constant names; its case does not matter. Raises QueryError: there is none, or it is no constant."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        fix = "write its name, a text: every row has the same zone"
        raise source.error("TYPE", node, "a time zone is a constant", fix=fix, example=example)
    name = str(node.this)
    zone = find_zone(name)
    if zone is None:
        raise source.error("ZONE", node, f"there is no time zone {name}", fix=suggest_zone(name), example=example)
    return zone
