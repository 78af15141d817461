"""
The kinds of value a query knows: the types of Azure Stream Analytics (ASA), decided one value at a time.

A declared field or a CAST always has one kind. An undeclared JSON field has the kind of each event's value: a number without point and
exponent that fits 64 bits is a bigint, any other number a float. A kind is never inferred from other rows
(docs/queries/expressions.md#types), so batch boundaries cannot change a result.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

from tidegate.basics.dead_letter_reasons import QueryReason, ReasonText


class Kind(StrEnum):
    """A kind of value; its letter is the suffix of the names of columns of that kind."""

    NULL = "n"
    BIT = "b"
    BIGINT = "i"
    FLOAT = "f"
    DATETIME = "t"
    NVARCHAR = "s"
    RECORD = "r"
    ARRAY = "a"

    @property
    def asa_name(self) -> str:
        return _FORMS[self][0]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its columns: int64 microseconds since 1970 for a datetime, JSON text for a record or array."""
        return _FORMS[self][1]


# The name in ASA and the Arrow type of each kind.
_FORMS: dict[Kind, tuple[str, pa.DataType]] = {
    Kind.NULL: ("NULL", pa.null()),
    Kind.BIT: ("bit", pa.bool_()),
    Kind.BIGINT: ("bigint", pa.int64()),
    Kind.FLOAT: ("float", pa.float64()),
    Kind.DATETIME: ("datetime", pa.int64()),
    Kind.NVARCHAR: ("nvarchar(max)", pa.string()),
    Kind.RECORD: ("record", pa.string()),
    Kind.ARRAY: ("array", pa.string()),
}

# Every kind of a value that is not NULL, in the sort order of values of different kinds.
VALUE_KINDS = tuple(kind for kind in Kind if kind is not Kind.NULL)

# The names of types in scripts and settings, lower case.
DECLARABLE = {kind.asa_name: kind for kind in VALUE_KINDS} | {"nvarchar": Kind.NVARCHAR}


def mismatch_reason(expected: Kind, kind: Kind) -> ReasonText:
    """Return the reason why a value of *kind* is refused where one of another kind is needed."""
    article = "an" if expected is Kind.ARRAY else "a"
    return QueryReason.WRONG_KIND.text(f"{article} {expected.asa_name}", kind.asa_name)


class KindMismatch(Exception):
    """An operation cannot work on a kind of value; callers turn it into an error of the script or a failed row."""

    def __init__(self, reason: ReasonText) -> None:
        super().__init__(reason)
        self.reason = reason
