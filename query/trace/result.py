"""
A result, and the events from which it was made.

Law: it only reads. The events of a result are those within the query's look-back before it whose fields equal the columns that the result
takes over from them (:mod:`query.plan.origins`), of its key if the query has OVER. They may be too many: conditions of the query are not
applied, and a key that comes from several input partitions has a result for each. Each result of another query among them is traced in
turn. Of reference data the versions are named that are there now and valid at the times of these events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ordering.errors import RefusedError, SettingError
from ordering.protocol.wire import Flag
from ordering.ticks import INFINITY, NEVER, TICK_MIN, format_tick
from query.config import Partition
from query.output_plan import find_plan
from query.plan.nodes import UNBOUNDED, Plan
from query.reference.files import versions_of
from query.trace.rows import row_at, rows_of, shown, text_of
from query.verify.because import Condition, conditions_of, payload_of
from query.verify.rows import ResultRow
from tidegate.ordered_topic.compare.sides import make_side
from tidegate.ordered_topic.decode import decode
from tidegate.ordered_topic.events import OrderedEvents
from tidegate.ordered_topic.walk import PartitionWalk
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.settings.load import Settings

# How many of the events of one input a trace holds, and how many results are traced in turn at each step.
EVENTS_MAX, TRACED_MAX = 100, 3
_POLICIES = (Flag.EARLY, Flag.LATE, Flag.OUT_OF_ORDER, Flag.CTI_VIOLATION)


@dataclass(frozen=True, slots=True)
class TracedEvent:
    """An event, or result of another query, that a result was made of."""

    # Where it stands in the ordered topic; ``origin`` where in the raw topic, empty for a result of another query.
    place: str
    origin: str
    seq: int
    system_us: int
    event_time_us: int
    # What moved its time.
    policies: tuple[str, ...]
    key: str | None
    value: Any
    made_from: ResultTrace | None = None

    def to_json(self) -> dict[str, Any]:
        made_from = {} if self.made_from is None else {"made_from": self.made_from.to_json()}
        times = {"system_timestamp": format_tick(self.system_us), "event_time": format_tick(self.event_time_us)}
        places = {"place": self.place, "origin": self.origin or None, "seq": self.seq}
        return {**places, **times, "policies": list(self.policies), "key": self.key, "value": self.value, **made_from}


@dataclass(frozen=True, slots=True)
class InputTrace:
    """The events of one input that a result was made of: the first ones, and how many there are in all."""

    input: str
    since_us: int | None
    conditions: tuple[str, ...]
    events: tuple[TracedEvent, ...]
    count: int

    def to_json(self) -> dict[str, Any]:
        events = [event.to_json() for event in self.events]
        span = {"since": None if self.since_us is None else format_tick(self.since_us), "where": list(self.conditions)}
        return {"input": self.input, **span, "count": self.count, "events": events}


@dataclass(frozen=True, slots=True)
class ReferenceTrace:
    """The versions of a reference table that were valid at the times of a result's events: the file, and the instant since when."""

    table: str
    versions: tuple[tuple[int, str], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "versions": [
                {"file": file, "since": None if begins_us == NEVER else format_tick(begins_us)} for begins_us, file in self.versions
            ],
        }

    def in_words(self) -> str:
        versions = [f"{file}{'' if begins_us == NEVER else f', valid since {format_tick(begins_us)}'}" for begins_us, file in self.versions]
        return f"looked up in {self.table}: {'; '.join(versions) or 'no version is there'}"


@dataclass(frozen=True, slots=True)
class ResultTrace:
    """A result of an output, and what it was made of."""

    output: str
    place: str
    seq: int
    system_us: int
    key: str | None
    value: Any
    inputs: tuple[InputTrace, ...]
    references: tuple[ReferenceTrace, ...]

    def to_json(self) -> dict[str, Any]:
        members = {"output": self.output, "place": self.place, "seq": self.seq, "system_timestamp": format_tick(self.system_us)}
        inputs, references = [each.to_json() for each in self.inputs], [each.to_json() for each in self.references]
        return {**members, "key": self.key, "value": self.value, "inputs": inputs, "references": references}


class Tracer:
    """
    Traces results.

    Args:
        folder: Where the paths of the configuration begin.
        read_roster: Returns the raw partitions of an input by their roster numbers.
    """

    def __init__(self, settings: Settings, admin: Admin, folder: Path, read_roster: Callable[[str], Sequence[Partition]]) -> None:
        self._settings, self._admin, self._folder = settings, admin, folder
        self._kafka = settings.kafka.client_properties()
        self._roster_of = cache(read_roster)

    def at_place(self, output: str, partition: int, offset: int) -> ResultTrace:
        """Return the trace of the result at an offset. RefusedError: there is none."""
        topic = self._topic_of(output)
        starts, ends = self._admin.starts([(topic, partition)]), self._admin.ends([(topic, partition)])
        if starts[topic, partition] <= offset < ends[topic, partition]:
            with RangeReader(self._kafka, topic, partition, headers=True) as reader:
                for records in reader.read(offset, offset + 1):
                    for row in rows_of(decode(records, topic, partition).events, topic, partition):
                        return self._trace(output, row, ())
        fix = f"tidegate peek {topic} shows the results that are there"
        raise RefusedError("there is no result at that place", code="TG-EXPLAIN-RESULT", where=f"{topic}-{partition}@{offset}", fix=fix)

    def of_key(self, output: str, key: str | None, at_us: int) -> list[ResultTrace]:
        """Return the traces of the results of a time, and of a key (None: of all), in the order of partition and seq."""
        topic = self._admin.require(self._topic_of(output), "start the query that writes it")
        side, found = make_side("A", self._admin, self._kafka, topic, at_us), list[ResultRow]()
        for partition in range(topic.partitions):
            for piece in PartitionWalk(side, partition).run(at_us + 1):
                rows = rows_of(piece.events, topic.name, partition)
                found += [row for row in rows if row.system_us == at_us and (key is None or row.key == key.encode())]
        return [self._trace(output, row, ()) for row in found[:TRACED_MAX]]

    def _topic_of(self, output: str) -> str:
        table = self._settings.output(output)
        return table.topic or output

    def _plan_of(self, output: str) -> Plan:
        table = self._settings.output(output)
        plan = find_plan(self._settings, table, self._folder, lambda: self._admin.find(self._topic_of(output)))
        if plan is None:
            what, fix = f"nothing says which query writes {output}", "set the output's query, or list it in [queries]"
            raise RefusedError(what, code="TG-WHY-QUERY", where=f"outputs.{output}", fix=fix, example=f'query = "{output}.sql"')
        return plan

    def _trace(self, output: str, row: ResultRow, above: tuple[str, ...]) -> ResultTrace:
        plan = self._plan_of(output)
        inputs = tuple(self._input_trace(plan, name, row, (*above, output)) for name in plan.inputs)
        references = tuple(self._reference_trace(plan, name, row.system_us) for name in plan.references)
        return ResultTrace(output, row.place, row.seq, row.system_us, text_of(row.key), shown(row.value), inputs, references)

    def _reference_trace(self, plan: Plan, name: str, until_us: int) -> ReferenceTrace:
        since_us = NEVER if plan.lookback_us == UNBOUNDED else until_us - plan.lookback_us
        versions: list[tuple[int, str]] = []
        # A table may have no file any more.
        with suppress(RefusedError):
            versions = [(begins_us, str(path)) for begins_us, path in versions_of(self._settings.references[name])]
        ends = [begins_us for begins_us, _ in versions[1:]] + [INFINITY]
        valid = [version for version, end_us in zip(versions, ends, strict=True) if version[0] <= until_us and end_us > since_us]
        return ReferenceTrace(name, tuple(valid))

    def _input_trace(self, plan: Plan, name: str, row: ResultRow, above: tuple[str, ...]) -> InputTrace:
        is_result = name not in self._settings.inputs
        topic = self._admin.require(self._topic_of(name) if is_result else self._settings.input(name).ordered_topic)
        is_json = is_result or self._settings.input(name).format == "json"
        conditions = conditions_of(plan, name, row) if is_json else []
        since_us = None if plan.lookback_us == UNBOUNDED else max(row.system_us - plan.lookback_us, TICK_MIN)
        side = make_side("A", self._admin, self._kafka, topic, since_us)
        found: list[tuple[ResultRow, Any]] = []
        count = 0
        by_key = row.key if plan.over is not None else None
        for partition in range(topic.partitions):
            for piece in PartitionWalk(side, partition).run(row.system_us + 1):
                for each, header in _chosen(piece.events, topic.name, partition, since_us, row.system_us, by_key, conditions):
                    count += 1
                    if len(found) < EVENTS_MAX:
                        found.append((each, header))
        found.sort(key=lambda pair: (pair[0].system_us, pair[0].place))
        events = tuple(self._event(name, each, header, is_result, place, above) for place, (each, header) in enumerate(found))
        return InputTrace(name, since_us, tuple(map(str, conditions)), events, count)

    def _event(self, name: str, row: ResultRow, header: Any, is_result: bool, place: int, above: tuple[str, ...]) -> TracedEvent:
        flags = Flag(int(header["flags"]))
        policies = tuple(str(flag.name).lower() for flag in _POLICIES if flag in flags)
        origin = "" if is_result else self._origin(name, int(header["number"]), int(header["offset"]))
        made_from = self._trace(name, row, above) if is_result and place < TRACED_MAX and name not in above else None
        times = row.system_us, int(header["event_time_us"])
        return TracedEvent(row.place, origin, row.seq, *times, policies, text_of(row.key), shown(row.value), made_from)

    def _origin(self, name: str, number: int, offset: int) -> str:
        """Return the place of an event's raw record, by the roster of its input."""
        partitions = self._roster_of(name)
        if number >= len(partitions):
            return f"input partition {number}@{offset}"
        topic, partition = partitions[number]
        return f"{topic}-{partition}@{self._settings.input(name).places.text(offset)}"


def find_output(settings: Settings, topic: str) -> str | None:
    """Return the output whose topic this is."""
    return next((name for name, table in settings.outputs.items() if (table.topic or name) == topic), None)


def require_output(settings: Settings, name: str) -> str:
    """Return an output's name. SettingError: there is no such output."""
    if name in settings.outputs:
        return name
    fix = f"name one of: {', '.join(sorted(settings.outputs)) or '(none is configured)'}"
    raise SettingError(f"there is no output {name}", code="TG-SETTING-NAME", where="OUTPUT", fix=fix)


def _chosen(
    events: OrderedEvents,
    topic: str,
    partition: int,
    since_us: int | None,
    until_us: int,
    key: bytes | None,
    conditions: list[Condition],
) -> Iterator[tuple[ResultRow, Any]]:
    fields = events.fields
    in_time = (events.system_us <= until_us) & (events.system_us >= (NEVER if since_us is None else since_us))
    for index in in_time.nonzero()[0].tolist():
        if key is not None and (events.key[index].as_py() or b"") != key:
            continue
        row = row_at(events, index, topic, partition)
        if all(condition.holds(payload_of(row.value)) for condition in conditions):
            yield row, fields[index]
