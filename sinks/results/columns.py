"""
The columns of published results, and results as tables with these columns.

Law: names and types follow from what declares them - the caller, the output's settings, its query, or the query that is known to have
written the topic - never from a part of the results. If nothing declares them, they follow from all results that are read, as one table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordering.errors import SettingError
from sinks.stores.base import Rows, RowsRefused
from sinks.stores.typed_rows import make_typed_table
from tidegate.records.result_columns import Column, are_known, make_schema

if TYPE_CHECKING:
    from tidegate.platform.kafka.admin import Topic
    from tidegate.platform.settings.load import Settings
    from tidegate.platform.settings.tables.outputs import OutputSettings

BIGINT_MIN, BIGINT_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """Name and type of each column, empty if nothing declares them; and which column has the results' System.Timestamp, if one has."""

    columns: Sequence[Column] = ()
    time_column: str | None = None

    @property
    def are_known(self) -> bool:
        return bool(self.columns)


def find_columns(
    settings: Settings,
    output: OutputSettings | None,
    folder: Path,
    find_topic: Callable[[], Topic | None],
    given: Mapping[str, str] | None,
) -> ResultColumns:
    """
    Return the columns of an output's results. *folder* is where the paths of its configuration begin; *given* are the caller's, which count
    more than all others; *find_topic* asks the brokers for the output's topic. Raises QueryError: the output's script is wrong.
    """
    if given:
        return ResultColumns(tuple(given.items()))
    if output is None:
        return ResultColumns()
    from query.output_plan import find_plan, read_plan, time_column

    if output.columns:
        plan = read_plan(settings, output, folder)
        return ResultColumns(tuple(output.columns.items()), None if plan is None else time_column(plan))
    plan = find_plan(settings, output, folder, find_topic)
    if plan is None:
        return ResultColumns()
    return ResultColumns(tuple(plan.columns) if are_known(plan.columns) else (), time_column(plan))


def make_result_table(pieces: Sequence[Rows], columns: Sequence[Column], where: str) -> pa.Table:
    """Return results with the *columns*, or with those that they have. Raises SettingError (TG-READ-TYPES): they have others."""
    if not pieces:
        return make_schema(columns).empty_table()
    rows = Rows.concat(pieces)
    if not columns:
        return infer_table(rows.value.to_pylist())
    try:
        return make_typed_table(rows, columns)
    except RowsRefused as refused:
        what = f"a result does not have the columns that are declared: {refused.refusals[0].reason}"
        fix = "declare the columns that it has; if an earlier query wrote it, read from a later time on"
        raise SettingError(what, code="TG-READ-TYPES", where=where, fix=fix, example='columns={"car": "nvarchar(max)"}') from None


def infer_table(values: Sequence[bytes]) -> pa.Table:
    """
    Return JSON objects as a table, with the columns in the order in which they first occur. A column is a bool, a bigint, a float or a text
    if all its values are; else it is text that holds each value as JSON.
    """
    cells: dict[str, list[Any]] = {}
    for row, value in enumerate(values):
        for name, cell in json.loads(value).items():
            column = cells.setdefault(name, [])
            column += [None] * (row - len(column))
            column.append(cell)
    return pa.table({name: _infer_column(column + [None] * (len(values) - len(column))) for name, column in cells.items()})


def _infer_column(cells: list[Any]) -> pa.Array:
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {bool}:
        return pa.array(cells, pa.bool_())
    if kinds <= {int} and all(BIGINT_MIN <= cell <= BIGINT_MAX for cell in cells if cell is not None):
        return pa.array(cells, pa.int64())
    if kinds <= {int, float}:
        return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
    if kinds <= {str}:
        return pa.array(cells, pa.string())
    return pa.array([None if cell is None else json.dumps(cell, separators=(",", ":"), ensure_ascii=False) for cell in cells], pa.string())
