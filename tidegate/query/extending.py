"""For packages that extend queries: :mod:`query.extending`."""

from query.extending import (
    BAD_SCHEMA,
    AggregateFunction,
    Argument,
    ColumnArgument,
    Length,
    NamedColumn,
    Operator,
    OperatorExtension,
    Retained,
    RowColumn,
    ScalarFunction,
    by_substream,
    from_columns,
    group_numbers,
    only_side,
    ticks,
)

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
