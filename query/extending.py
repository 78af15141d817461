"""
The public interface for packages that extend queries. They import these names and no other module of ``query``
except :mod:`query.api` (queries written in Python); sinks have :mod:`sinks.base` and :mod:`sinks.registry`. docs/queries/extending.md
explains them; examples/plugin is a package that uses each. Names here keep their meaning; the modules that define them may move.

======================================  ===============================================================================
:class:`ScalarFunction`                 a function of one row: ``udf.name(...)``
:class:`AggregateFunction`              an aggregate of many rows: ``uda.name(...)``
:class:`OperatorExtension`              an operator that FROM calls by name, with its arguments: :class:`RowColumn`,
                                        :class:`ColumnArgument`, :class:`Length`, :class:`NamedColumn`
:class:`Operator`                       the base class of operators
``Retained``, ``BAD_SCHEMA``            what an operator's methods take and return
``only_side``, ``ticks``,               helpers to read the rows it keeps
``by_substream``, ``from_columns``,
``group_numbers``
======================================  ===============================================================================
"""

from __future__ import annotations

from query.extensions import AggregateFunction, ScalarFunction
from query.operators.rows.row_groups import group_numbers
from query.plan.operator import Operator
from query.plan.operator_extensions import Argument, ColumnArgument, Length, NamedColumn, OperatorExtension, RowColumn
from query.plan.row_tables import BAD_SCHEMA, Retained, by_substream, only_side, ticks
from tidegate.language.expressions.variant import from_columns

__all__ = [
    "BAD_SCHEMA",
    "AggregateFunction",
    "Argument",
    "ColumnArgument",
    "Length",
    "NamedColumn",
    "Operator",
    "OperatorExtension",
    "Retained",
    "RowColumn",
    "ScalarFunction",
    "by_substream",
    "from_columns",
    "group_numbers",
    "only_side",
    "ticks",
]
