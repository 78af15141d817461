"""
Binding of an input after FROM: its name, TIMESTAMP BY and OVER.

The event time and the substreams of a Kafka input are configured, and a script must agree with them. For a *free* input (files) the script
decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from query.plan.nodes import Reference, Scan
from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.binding.names import InputNames
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.binding.setting_expressions import bind_setting
from tidegate.language.expressions.syntax.dialect import OVER, TIMESTAMP_BY
from tidegate.language.expressions.syntax.errors import Source, suggest
from tidegate.language.expressions.syntax.parse import Script
from tidegate.language.expressions.tree import Arrival, Expr, PartitionId, SystemTimestamp, key_list

# Key in the meta of the table that replaces an operator call: the call's text, shortened.
_SPELLED_CALL = "called"


@dataclass(frozen=True)
class InputBinder:
    """Binds the names of inputs after FROM, with their TIMESTAMP BY and OVER."""

    source: Source
    inputs: Sequence[InputSchema]

    def find_schema(self, table: exp.Table, steps: Sequence[str] = ()) -> InputSchema:
        """Return the input that FROM names; *steps* are further candidates for the message."""
        spelled = spelled_name(table)
        schema = next((schema for schema in self.inputs if schema.name.lower() == spelled.lower()), None)
        if schema is None:
            known = [*(schema.name for schema in self.inputs), *steps]
            others = f"inputs are {', '.join(known)}" if known else without_inputs(spelled)
            if known and all(schema.is_free or schema.is_reference for schema in self.inputs):
                others += f"; name its file by --input {spelled}=FILE, or a table without times by --reference {spelled}=FILE"
            fix = suggest(spelled, known, others)
            if any(str(step.alias).lower() == spelled.lower() for step in table.root().find_all(exp.CTE)):
                fix = f"a step can be read by what follows it: write {spelled} before this place"
            raise self.source.error("INPUT", table, f"there is no input {spelled}", fix=fix)
        return schema

    def bind_rows(self, table: exp.Table, schema: InputSchema, names: frozenset[str]) -> Scan | Reference:
        """Return the node that reads an input. Raises QueryError: TIMESTAMP BY or OVER contradicts the input's."""
        if schema.is_reference:
            if table.args.get(TIMESTAMP_BY) or table.args.get(OVER):
                fix = "leave TIMESTAMP BY and OVER out"
                raise self.source.error("TIMESTAMP", table, f"{schema.name} is reference data and has no time", fix=fix)
            return Reference(schema.name)
        names_of = InputNames(self.source, schema, names)
        binder = ScalarBinder(self.source, names_of)
        over = self._over(table, schema, binder, names_of)
        return Scan(schema.name, self._timestamp_by(table, schema, binder, names_of), over)

    def _timestamp_by(self, table: exp.Table, schema: InputSchema, binder: ScalarBinder, names: InputNames) -> Expr | None:
        node = table.args.get(TIMESTAMP_BY)
        written = binder.bind(node, event_clause="TIMESTAMP BY") if node is not None else None
        if schema.is_result:
            if written is not None and not isinstance(written, SystemTimestamp):
                message = f"{schema.name} is the result of a query: its event time is System.Timestamp(), not {written}"
                raise self.source.error("TIMESTAMP", node or table, message, fix="leave TIMESTAMP BY out")
            return None
        if isinstance(written, Arrival) and schema.timestamp_by is None:
            # Arrival order is what an input has without TIMESTAMP BY.
            written = None
        if schema.is_free:
            return written
        configured = self._configured_time(schema, names)
        if written == configured:
            return configured
        read = table.meta.get(_SPELLED_CALL, schema.name)
        if written is None:
            message = f"{schema.name} has the event time {configured}, and the query does not say so"
            fix, example = "add TIMESTAMP BY", f"FROM {read} TIMESTAMP BY {configured}"
        elif configured is None:
            message = f"{schema.name} is ordered by arrival, not by {written}"
            fix, example = "leave TIMESTAMP BY out, or set timestamp_by of the input and order it anew", f"FROM {read}"
        else:
            message = f"{schema.name} is ordered by {configured}, not by {written}"
            fix, example = "write the input's event time", f"FROM {read} TIMESTAMP BY {configured}"
        raise self.source.error("TIMESTAMP", node if node is not None else table, message, fix=fix, example=example)

    def _over(self, table: exp.Table, schema: InputSchema, binder: ScalarBinder, names: InputNames) -> Expr | None:
        nodes = table.args.get(OVER) or []
        written = [(node, bound) for node in nodes if not isinstance(bound := binder.bind(node, event_clause="OVER"), PartitionId)]
        if not written:
            return None
        if schema.is_result and len(written) > 1:
            fix = "leave OVER out, or let the query that writes it join the keys in one column"
            raise self.source.not_yet(written[1][0], f"OVER with several keys of {schema.name}, the result of a query, is", fix=fix)
        node, over = written[0][0], key_list([key for _, key in written])
        configured = names.configured_over()
        if over != configured and not schema.is_free and not (schema.is_result and configured is None):
            message, fix = f"{schema.name} has no substreams", "leave OVER out, or set over of the input and order it anew"
            if configured:
                message, fix = f"{schema.name} is ordered over {configured}, not over {over}", f"write OVER {configured}, or leave OVER out"
            raise self.source.error("OVER", node, message, fix=fix)
        return over

    def _configured_time(self, schema: InputSchema, names: InputNames) -> Expr | None:
        text = schema.timestamp_by
        return None if text is None else replace(bind_setting(text, f"inputs.{schema.name}.timestamp_by", schema, names.aliases), offset=-1)


def without_inputs(name: str) -> str:
    """Return the fix for a script that names an input when none is configured."""
    return f"add [inputs.{name}] to tidegate.toml, or name another file by --config; tidegate lint and tidegate local need none"


def names_in(script: Script) -> set[str]:
    """Return all names after FROM and JOIN, as the script spells them."""
    return {spelled_name(named_table(table)) for statement in script.statements for table in statement.find_all(exp.Table)}


def spelled_name(table: exp.Table) -> str:
    """Return a name after FROM as the script spells it."""
    return ".".join(part.name for part in table.parts)


def named_table(table: exp.Table) -> exp.Table:
    """Return the table argument of an operator call after FROM, with the call's TIMESTAMP BY and OVER; without a call *table* itself."""
    if not isinstance(table.this, exp.Anonymous):
        return table
    first = next(iter(table.this.expressions), None)
    parts = [part.copy() for part in first.parts] if isinstance(first, exp.Column) else []
    clauses = {clause: table.args[clause] for clause in (TIMESTAMP_BY, OVER) if table.args.get(clause)}
    named = exp.Table(**dict(zip(("this", "db", "catalog"), reversed(parts), strict=False)), **clauses)
    named.meta[_SPELLED_CALL] = f"{table.this.name}({spelled_name(named)}, ...)"
    return named
