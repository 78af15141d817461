"""
The kinds of value a query knows: ASA's types, seen one value at a time.

A declared field or a CAST has one kind for ever. An undeclared JSON field has the kind each event gives it: a number
without point and exponent that fits is a bigint, any other number a float. No kind is ever concluded from other rows
(spec section 5), so how the stream was cut into batches cannot change a result.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class Kind(StrEnum):
    """A kind of value; its letter is the suffix of the columns that hold such values."""

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
        """The kind as ASA spells it."""
        return _FORMS[self][0]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its columns; a datetime is microseconds since 1970, a record or array its JSON text."""
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

# Every kind a value that is not NULL can have, in the order in which values of different kinds are sorted.
VALUE_KINDS = tuple(kind for kind in Kind if kind is not Kind.NULL)

# Names of types as a script or a configuration may spell them (in lower case).
DECLARABLE = {kind.asa_name: kind for kind in VALUE_KINDS} | {"nvarchar": Kind.NVARCHAR}


class KindMismatch(Exception):
    """An operation met a kind of value it cannot work on; callers turn it into an error of the script or a failed row."""
