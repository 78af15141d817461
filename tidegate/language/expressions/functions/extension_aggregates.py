"""
Aggregates of installed extensions, by the name that scripts use (``uda.name``).

Law: a value depends only on the rows of its own group and window, in their order. A group that cannot be computed is reported as a
:class:`Failure`, never raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidegate.basics.package_offers import Registry
from tidegate.language.expressions.functions.column_functions import Failure, RowNumbers
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, OnlyKind

# Arguments of sorted rows, and the numbers of the first and last row of each result (inclusive) -> a value for each result, and the
# results that failed, NULL in it.
AggregateRule = Callable[[Sequence[pa.Array], RowNumbers, RowNumbers], tuple[pa.Array, Sequence[Failure]]]


@dataclass(frozen=True, slots=True)
class ExtensionAggregate:
    """One aggregate."""

    argument_kinds: tuple[Kind, ...]
    result_kind: Kind
    compute: AggregateRule


REGISTERED: Registry[ExtensionAggregate] = Registry()


def require_kind(arg: Expr, kind: Kind) -> Expr:
    """Return *arg* restricted to values that are accepted as *kind*: a row with another kind fails, NULL stays NULL."""
    return OnlyKind(arg, kind, offset=arg.offset)
