"""
Explains differences of results: which columns differ, and from which events a result was made.

Law: an explanation only reads, and only after a difference was found. The events of a result are those within the query's look-back before
it whose fields equal the columns that the result takes over from them. They may be too many: conditions of the query are not applied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from ordering.ticks import NEVER, TICK_MIN, format_tick
from query.config import Feed, QueryPlan
from query.plan.nodes import UNBOUNDED, Plan
from query.plan.origins import origins
from query.verify.rows import ResultRow, RowDifference
from query.verify.stage import VerifiedQuery, row_differences
from tidegate.language.expressions.tree import Cast, Expr, Field, Slot
from tidegate.ordered_topic.compare.sides import make_side
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.walk import PartitionWalk
from tidegate.platform.kafka.admin import Admin

_SHOWN_DIFFERENCES = 3
_SHOWN_EVENTS = 6
# Returns the place of a raw record by the roster number of its partition and its offset.
RawPlace = Callable[[int, int], str]


@dataclass(frozen=True, slots=True)
class Condition:
    """The value that a field of an event must have: that of the result's column which takes it over."""

    path: tuple[str, ...]
    value: Any

    def holds(self, payload: Any) -> bool:
        for name in self.path:
            members = {str(key).lower(): member for key, member in payload.items()} if isinstance(payload, dict) else {}
            payload = members.get(name.lower())
        return bool(payload == self.value)

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} = {orjson.dumps(self.value).decode()}"


def explain_rows(stage: VerifiedQuery, admin: Admin, raw_places: Mapping[str, RawPlace]) -> Iterator[str]:
    """Yield lines that explain the first differences of a stage; *raw_places* are those of its inputs that were verified, by name."""
    for difference in row_differences(stage)[:_SHOWN_DIFFERENCES]:
        yield from _changed_members(difference)
        row = difference.should or difference.stands
        if row is None or difference.partition < 0:
            continue
        query, plan = _query_of(stage, difference)
        for feed in query.feeds:
            if feed.input in plan.inputs:
                yield _describe_events(query, plan, feed, row, difference.partition, admin, raw_places)


def _query_of(stage: VerifiedQuery, difference: RowDifference) -> tuple[QueryPlan, Plan]:
    """Return the query of the run that has written a row that differs, and the plan of its output: a script may have several."""
    for part in stage.parts[::-1]:
        for plan, number in zip(part.recount.plan.plans, part.outputs, strict=True):
            if number is None:
                continue
            channels = stage.topics.get(number, ())
            if any(difference is known for known in (stage.files[number].differences if number in stage.files else ())):
                return part.recount.plan, plan
            is_of_output = any(difference is channel.difference for channel in channels) or any(
                difference is known for table in stage.tables.get(number, ()) for known in table.differences
            )
            if is_of_output and part is stage.part_of(number, difference):
                return part.recount.plan, plan
    return stage.recount.plan, stage.recount.plan.plans[0]


def _changed_members(difference: RowDifference) -> Iterator[str]:
    """Yield which columns differ, if both rows are JSON objects."""
    stands, should = _members(difference.stands), _members(difference.should)
    if difference.kind != "changed" or stands is None or should is None:
        return
    for name in dict.fromkeys((*should, *stands)):
        values = [row.get(name, _ABSENT) for row in (stands, should)]
        if values[0] != values[1]:
            texts = ("no value" if value is _ABSENT else json.dumps(value, ensure_ascii=False) for value in values)
            yield "column {}: found {}, expected {}".format(name, *texts)


_ABSENT = object()


def _members(row: ResultRow | None) -> dict[str, Any] | None:
    """Return a row's columns if its value is a JSON object, else None."""
    try:
        # json accepts NaN and Infinity, which a table may hold; orjson does not.
        value = json.loads(row.value or b"") if row is not None else None
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _describe_events(
    query: QueryPlan, plan: Plan, feed: Feed, row: ResultRow, bucket: int, admin: Admin, raw_places: Mapping[str, RawPlace]
) -> str:
    """Return a line that lists the events of one input from which a result was made."""
    conditions = conditions_of(plan, feed.input, row) if feed.payloads.name == "json" else []
    since_us = None if plan.lookback_us == UNBOUNDED else max(row.system_us - plan.lookback_us, TICK_MIN)
    logs = [log for log in query.logs_of(bucket) if query.feeds[query.logs[log][0]] == feed]
    wanted = _Wanted(row, since_us, conditions, by_key=plan.over is not None)
    found: list[tuple[int, str]] = []
    side = make_side("A", admin, query.kafka, admin.require(feed.topic), since_us)
    for log in logs:
        partition = query.logs[log][1]
        for piece in PartitionWalk(side, partition).run(row.system_us + 1):
            events = _find_events(piece.events, wanted)
            found += [(int(piece.events.system_us[index]), _place_of(piece.events, index, feed, partition, raw_places)) for index in events]
    found.sort()
    span = f"until {format_tick(row.system_us)}" if since_us is None else f"from {format_tick(since_us)} to {format_tick(row.system_us)}"
    which = f" with {' and '.join(map(str, conditions))}" if conditions else ""
    shown = ", ".join(f"{place} ({format_tick(us)})" for us, place in found[:_SHOWN_EVENTS])
    more = f" and {len(found) - _SHOWN_EVENTS:,} more" if len(found) > _SHOWN_EVENTS else ""
    return f"made from among the {len(found):,} events of {feed.topic} {span}{which}: {shown or 'none'}{more}"


class _Wanted(NamedTuple):
    """Which events may have made a result: those up to its time, with *by_key* of its key, on which *conditions* hold."""

    row: ResultRow
    # The first time that counts, microseconds; None: any.
    since_us: int | None
    conditions: Sequence[Condition]
    by_key: bool


def _find_events(events: OrderedEvents, wanted: _Wanted) -> Iterator[int]:
    """Yield the rows of the events that may have made a result."""
    row, since_us, conditions, by_key = wanted
    in_time = (events.system_us <= row.system_us) & (events.system_us >= (NEVER if since_us is None else since_us))
    for index in in_time.nonzero()[0].tolist():
        if by_key and (events.key[index].as_py() or b"") != (row.key or b"") and row.key is not None:
            continue
        if not conditions or all(condition.holds(payload_of(events.value[index].as_py())) for condition in conditions):
            yield index


def _place_of(events: OrderedEvents, index: int, feed: Feed, partition: int, raw_places: Mapping[str, RawPlace]) -> str:
    """Return where an event comes from: its record in the raw topic, else its number in the topic that was read."""
    raw_place = raw_places.get(feed.input)
    if raw_place is not None and not feed.is_result:
        return raw_place(int(events.number[index]), int(events.fields["offset"][index]))
    return f"{feed.topic}-{partition} row {int(events.seq[index])}"


def payload_of(value: bytes | None) -> Any:
    """Return a payload of JSON as a value; None if it is none."""
    try:
        return orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None


def conditions_of(plan: Plan, input: str, row: ResultRow) -> list[Condition]:
    """Return a condition for each column of a result that is a field of an event, taken over unchanged."""
    members = _members(row) or {}
    conditions = []
    for index, column in enumerate(plan.root.columns):
        known = origins(plan.root, Slot(index, column.name, None))
        paths = {_path(origin.expr) for origin in known if origin is not None and origin.input == input}
        value = members.get(column.name)
        # An event may write the same time in another form.
        is_time = dict(plan.columns).get(column.name) == "datetime"
        if len(paths) == 1 and (path := paths.pop()) is not None and isinstance(value, str | int | float) and not is_time:
            conditions.append(Condition(path, value))
    return conditions


def _path(expr: Expr) -> tuple[str, ...] | None:
    """Return the path of the field that an expression is, perhaps with its declared type; None if it is no field."""
    while isinstance(expr, Cast) and expr.declared:
        expr = expr.arg
    return expr.path if isinstance(expr, Field) else None
