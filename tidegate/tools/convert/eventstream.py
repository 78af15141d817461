"""
The definition of a Fabric Eventstream: a graph of sources, streams, operators and destinations, as its REST API gives it.

Each operator becomes a step of one script, each destination and each derived stream an output. Law: an operator that cannot be written gets
a note, and what reads it reads what came before it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tidegate.tools.convert.draft import Draft, Outcome, items_of, member, text_of
from tidegate.tools.convert.stream_analytics import read_json

FILE = "eventstream.json"
_COMPARISONS = {
    "equals": "{0} = {1}",
    "notequals": "{0} <> {1}",
    "greaterthan": "{0} > {1}",
    "greaterthanorequal": "{0} >= {1}",
    "greaterthanorequals": "{0} >= {1}",
    "lessthan": "{0} < {1}",
    "lessthanorequal": "{0} <= {1}",
    "lessthanorequals": "{0} <= {1}",
    "contains": "CHARINDEX({1}, {0}) > 0",
    "doesnotcontain": "CHARINDEX({1}, {0}) = 0",
    "startswith": "LEFT({0}, LEN({1})) = {1}",
    "doesnotstartwith": "LEFT({0}, LEN({1})) <> {1}",
    "endswith": "RIGHT({0}, LEN({1})) = {1}",
    "doesnotendwith": "RIGHT({0}, LEN({1})) <> {1}",
    "isnull": "{0} IS NULL",
    "isnotnull": "{0} IS NOT NULL",
    "isempty": "{0} = ''",
    "isnotnullorempty": "({0} IS NOT NULL AND {0} <> '')",
}
_AGGREGATES = {
    "average": "AVG",
    "sum": "SUM",
    "minimum": "MIN",
    "maximum": "MAX",
    "min": "MIN",
    "max": "MAX",
    "avg": "AVG",
    "count": "COUNT",
}
_AGGREGATES |= {"standarddeviation": "STDEV", "variance": "VAR"}


class _Unknown(Exception):
    """An operator has something that is not known here."""


def convert_eventstream(folder: Path) -> Draft:
    """Return the project made out of the definition in *folder*. Raises SettingError: it is no JSON."""
    graph = _definition(read_json(folder / FILE))
    draft = Draft("", "eventstream.sql")
    return _Graph(draft, graph).convert()


def _definition(value: Any) -> Any:
    """Return the graph; of the answer of the REST API, the part that is it."""
    for part in items_of(member(member(value, "definition") or {}, "parts")):
        if text_of(part, "path") == FILE:
            return json.loads(base64.b64decode(text_of(part, "payload")))
    return value


class _Graph:
    def __init__(self, draft: Draft, graph: Any) -> None:
        self._draft = draft
        self._nodes = {kind: items_of(member(graph, kind)) for kind in ("sources", "streams", "operators", "destinations")}
        # By the name of a node: what FROM says for it.
        self._names: dict[str, str] = {}
        self._steps: list[str] = []
        self._selects: list[str] = []

    def convert(self) -> Draft:
        for source in self._nodes["sources"]:
            self._add_source(source)
        waiting = [*self._nodes["streams"], *self._nodes["operators"]]
        while waiting:
            ready = [node for node in waiting if all(name in self._names for name in _inputs(node))]
            for node in ready or waiting[:1]:
                self._add_step(node)
                waiting.remove(node)
        for node in self._nodes["destinations"]:
            self._add_output(node, text_of(node, "type"))
        for node in self._nodes["streams"]:
            if text_of(node, "type") == "DerivedStream":
                self._add_output(node, "derived stream")
        steps = f"WITH {', '.join(self._steps)}\n" if self._steps else ""
        from query.formatting.format import format_script

        self._draft.script = format_script(steps + ";\n".join(self._selects) + "\n") if self._selects else ""
        self._draft.table("queries.eventstream")["script"] = self._draft.script_name
        return self._draft

    def _add_source(self, node: Any) -> None:
        name, kind = text_of(node, "name"), text_of(node, "type")
        plain = self._draft.name_of(name)
        self._names[name] = plain
        topic = text_of(member(node, "properties") or {}, "topic")
        self._draft.table(f"inputs.{plain}").update({"topic": topic or plain, "explode": "array"})
        fix = "set [kafka] to the brokers of its connection" if topic else f"its events are read from topic {plain}"
        if kind in ("CustomEndpoint", "AzureEventHub"):
            fix = "set [kafka] and topic to its Kafka endpoint (docs/operate/event-hubs.md)"
        self._draft.note(f"source {name}", "partly", f"a definition does not say where {kind} is: it names a connection", fix)

    def _add_step(self, node: Any) -> None:
        name, inputs = text_of(node, "name"), [self._names.get(each, self._draft.name_of(each)) for each in _inputs(node)]
        kind = text_of(node, "type")
        if kind in ("DefaultStream", "DerivedStream") and len(inputs) == 1:
            self._names[name] = inputs[0]
            return
        try:
            query = self._query(kind, member(node, "properties") or {}, inputs, _inputs(node))
        except _Unknown as error:
            self._draft.note(f"operator {name}", "none", str(error), "write it as a step of the script by hand")
            self._names[name] = inputs[0] if inputs else self._draft.name_of(name)
            return
        step = self._draft.name_of(name)
        self._names[name] = step
        self._steps.append(f"{step} AS ({query})")
        if kind == "Join":
            self._draft.note(
                f"operator {name}", "partly", "rows match if the right one comes at most the duration after the left", "check it"
            )
        elif kind in ("Aggregate", "GroupBy", "Filter", "ManageFields", "Expand"):
            self._draft.note(f"operator {name}", "converted", f"it is step {step}")

    def _query(self, kind: str, fields: Any, inputs: Sequence[str], written: Sequence[str]) -> str:
        if kind in ("DefaultStream", "DerivedStream", "Union") and inputs:
            return " UNION ".join(f"SELECT * FROM {name}" for name in inputs)
        if not inputs:
            raise _Unknown("nothing flows into it")
        source = inputs[0]
        if kind == "Filter":
            return f"SELECT * FROM {source} WHERE {' AND '.join(_condition(each) for each in items_of(member(fields, 'conditions')))}"
        if kind == "ManageFields":
            return f"SELECT {', '.join(_column(each) for each in items_of(member(fields, 'columns')))} FROM {source}"
        if kind == "GroupBy":
            keys = [_path(each) for each in items_of(member(fields, "groupBy"))]
            totals = [_aggregate(each) for each in items_of(member(fields, "aggregations"))]
            window = _window(member(fields, "window"), keys)
            return f"SELECT {', '.join([*keys, *totals])} FROM {source} GROUP BY {', '.join([*keys, window])}"
        if kind == "Aggregate":
            return f"SELECT *, {', '.join(_running(each) for each in items_of(member(fields, 'aggregations')))} FROM {source}"
        if kind == "Expand":
            column = _path(member(fields, "column"))
            apply = "CROSS" if member(fields, "ignoreMissingOrEmpty") is True else "OUTER"
            name = column.rpartition(".")[2]
            return f"SELECT e.*, x.ArrayValue AS {name} FROM {source} AS e {apply} APPLY GetArrayElements(e.{column}) AS x"
        if kind == "Join" and len(inputs) == 2:
            return _join(fields, inputs)
        raise _Unknown(f"an operator {kind} is not known" + (": its query stands in the definition" if kind.upper() == "SQL" else ""))

    def _add_output(self, node: Any, kind: str) -> None:
        name = text_of(node, "name")
        for source in _inputs(node)[:1]:
            output = self._draft.name_of(name)
            output = f"{output}_out" if output in self._names.values() else output
            settings = self._draft.table(f"outputs.{output}")
            settings["topic"] = output
            self._selects.append(f"SELECT * INTO {output} FROM {self._names.get(source, self._draft.name_of(source))}")
            fix = {
                "Lakehouse": f"[outputs.{output}.delta] with the path of the table (docs/operate/sinks-delta.md)",
                "Eventhouse": f"a reader of topic {output}, or files",
                "Activator": f"[outputs.{output}.http] (docs/operate/sinks-http.md)",
                "Reflex": f"[outputs.{output}.http] (docs/operate/sinks-http.md)",
            }.get(kind, "")
            outcome: Outcome = "converted" if kind in ("derived stream", "CustomEndpoint") else "partly"
            self._draft.note(f"{'output' if kind != 'derived stream' else kind} {name}", outcome, f"results go to topic {output}", fix)


def _inputs(node: Any) -> list[str]:
    return [text_of(each, "name") for each in items_of(member(node, "inputNodes"))]


def _path(column: Any) -> str:
    steps = [text_of(column, "columnName"), *(text_of(each, "field") for each in items_of(member(column, "columnPathSegments")))]
    if not steps[0]:
        raise _Unknown("a column has no name")
    return ".".join(f"[{step}]" for step in steps)


def _literal(value: Any) -> str:
    text, kind = text_of(value, "value"), text_of(value, "dataType").lower()
    if kind in ("bigint", "float", "int", "long", "bit", "double"):
        return text
    quoted = "'" + str(member(value, "value") or "").replace("'", "''") + "'"
    return f"CAST({quoted} AS datetime)" if kind == "datetime" else quoted


def _operand(value: Any) -> str:
    return _literal(value) if text_of(value, "expressionType") == "Literal" else _path(value)


def _condition(fields: Any) -> str:
    kind = text_of(fields, "operatorType", "operator")
    form = _COMPARISONS.get(kind.lower())
    if form is None:
        raise _Unknown(f"a condition {kind} is not known")
    value = member(fields, "value")
    return form.format(_path(member(fields, "column")), _operand(value) if value is not None else "")


def _column(fields: Any) -> str:
    kind, alias, inner = text_of(fields, "type"), text_of(fields, "alias"), member(fields, "properties") or {}
    if kind == "Rename":
        return f"{_path(member(inner, 'column'))} AS [{alias}]"
    if kind == "Cast":
        return f"CAST({_path(member(inner, 'column'))} AS {text_of(inner, 'targetDataType').lower()}) AS [{alias}]"
    if kind == "FunctionCall":
        arguments = ", ".join(_operand(each) for each in items_of(member(inner, "arguments")))
        return f"{text_of(inner, 'functionName').upper()}({arguments}) AS [{alias}]"
    raise _Unknown(f"a field {kind} is not known")


def _total(fields: Any) -> str:
    kind = text_of(fields, "aggregateFunction")
    function = _AGGREGATES.get(kind.lower())
    if function is None:
        raise _Unknown(f"an aggregate {kind} is not known")
    column = member(fields, "column")
    return f"{function}({'*' if function == 'COUNT' and column is None else _path(column)})"


def _aggregate(fields: Any) -> str:
    return f"{_total(fields)} AS [{text_of(fields, 'alias')}]"


def _running(fields: Any) -> str:
    keys = ", ".join(_path(each) for each in items_of(member(fields, "partitionBy")))
    over = f"{f'PARTITION BY {keys} ' if keys else ''}LIMIT DURATION({_span(member(fields, 'duration'))})"
    return f"{_total(fields)} OVER ({over}) AS [{text_of(fields, 'alias')}]"


def _span(fields: Any) -> str:
    unit, value = text_of(fields, "unit").lower().removesuffix("s"), text_of(fields, "value")
    if unit not in ("microsecond", "millisecond", "second", "minute", "hour", "day") or not value.isdecimal():
        raise _Unknown("a duration has no unit or no whole number")
    return f"{unit}, {value}"


def _window(fields: Any, keys: Sequence[str]) -> str:
    kind, inner = text_of(fields, "type"), member(fields, "properties") or {}
    if kind == "Snapshot":
        return "SnapshotWindow()"
    parts = dict(_parts(kind, inner))
    if kind in ("Tumbling", "Hopping", "Sliding") and "Duration" in parts:
        return f"{kind}Window({', '.join(f'{name}({span})' for name, span in parts.items())})"
    if kind == "Session" and len(parts) == 2:
        over = f" OVER (PARTITION BY {', '.join(keys)})" if keys else ""
        return f"SessionWindow({', '.join(f'{name}({span})' for name, span in parts.items())}){over}"
    raise _Unknown(f"a window {kind or 'without type'} is not known")


def _parts(kind: str, fields: Any) -> Iterator[tuple[str, str]]:
    names = {
        "Session": (("Timeout", "timeout"), ("MaxDuration", "maximumDuration")),
        "Sliding": (("Duration", "duration"),),
        "Tumbling": (("Duration", "duration"), ("Offset", "offset")),
    }
    for name, written in names.get(kind, (("Duration", "duration"), ("Hop", "hop"), ("Offset", "offset"))):
        given = member(fields, written, "maxDuration", "duration") if name == "MaxDuration" else member(fields, written)
        if given is not None and text_of(given, "value") != "0":
            yield name, _span(given)


def _join(fields: Any, inputs: Sequence[str]) -> str:
    pairs = [f"l.{_path(member(each, 'left'))} = r.{_path(member(each, 'right'))}" for each in items_of(member(fields, "joinOn"))]
    unit, _, value = _span(member(fields, "duration")).partition(", ")
    kind = text_of(fields, "joinType").lower()
    if kind not in ("inner", "leftouter", "left"):
        raise _Unknown(f"a join {kind} is not known")
    join = "JOIN" if kind == "inner" else "LEFT JOIN"
    matches = " AND ".join([*pairs, f"DATEDIFF({unit}, l, r) BETWEEN 0 AND {value}"])
    return f"SELECT l.*, r.* FROM {inputs[0]} AS l {join} {inputs[1]} AS r ON {matches}"
