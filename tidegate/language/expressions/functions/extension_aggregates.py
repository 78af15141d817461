"""
Aggregates of installed extensions, by the name that scripts use (``uda.name``).

Law: a value depends only on the rows of its own group and window, in their order. A group that cannot be computed is reported as a
:class:`FailedRows`, never raised.

The first value of each window, by the number of its first row:

>>> import pyarrow as pa
>>> from tidegate.query.extending import AggregateFunction
>>> from tidegate.testing import run_query
>>> first = AggregateFunction(lambda n, first, last: n.take(pa.array(first)), takes=("bigint",), gives="bigint")
>>> script = "SELECT uda.first(n) AS first INTO out FROM a TIMESTAMP BY t GROUP BY TumblingWindow(minute, 1)"
>>> events = [{"t": "2026-01-01T00:00:01Z", "n": 7}, {"t": "2026-01-01T00:00:02Z", "n": 8}, {"t": "2026-01-01T00:01:01Z", "n": 9}]
>>> run_query(script, {"a": events}, functions={"first": first}).rows
[{'first': 7}, {'first': 9}]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate.basics.package_offers import Registry
from tidegate.language.expressions.functions.column_functions import FailedRows, RowNumbers
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.tree import Expr, OnlyKind
from tidegate.language.expressions.variant import Variant

# Arguments of sorted rows, and the numbers of the first and last row of each result (inclusive) -> a value for each result, and the
# results that failed, NULL in it.
AggregateRule = Callable[[Sequence[Variant], RowNumbers, RowNumbers], tuple[Variant, Sequence[FailedRows]]]


@dataclass(frozen=True, slots=True)
class ExtensionAggregate:
    """
    One aggregate. None among the kinds means any. It takes as many arguments as it names kinds, or, if it names none, from *args_min* to
    *args_max*; with *takes_time* each row's System.Timestamp() follows them.
    """

    argument_kinds: tuple[Kind | None, ...]
    result_kind: Kind | None
    compute: AggregateRule
    args_min: int = 1
    args_max: int = 1
    takes_time: bool = False


REGISTERED: Registry[ExtensionAggregate] = Registry()


def require_kind(arg: Expr, kind: Kind) -> Expr:
    """Return *arg* restricted to values that are accepted as *kind*: a row with another kind fails, NULL stays NULL."""
    return OnlyKind(arg, kind, offset=arg.offset)
