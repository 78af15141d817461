"""
PARTITION BY of an input or step: how Stream Analytics spreads its work; here the clause only has to be harmless.

Law: a script with PARTITION BY gives the results that it gives without the clause. Where rows of different keys could meet, in a window, a
join or a function that looks back, the clause is refused, because Stream Analytics would keep them apart there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from query.plan.windows import AnyWindow, Session, WindowSet
from query.sql.join_on import OnCondition
from query.sql.scopes import Relation, RelationLeaf, ScopeNames
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.syntax.dialect import PARTITION_BY
from tidegate.language.expressions.syntax.errors import Source, offset_of
from tidegate.language.expressions.tree import Analytic, Expr, replace_parts

_LEAVE_OUT = "or leave PARTITION BY after the input out"


@dataclass(frozen=True)
class PartitionKey:
    """One key of PARTITION BY, over the names of a SELECT; *place* is its node in the script."""

    place: exp.Expr
    expr: Expr


@dataclass(frozen=True)
class PartitionKeys:
    """The key of PARTITION BY after each relation of a SELECT, by the relation's number; each check raises QueryError."""

    source: Source
    by_relation: Mapping[int, PartitionKey]

    @classmethod
    def of(cls, tables: Sequence[exp.Expr], relations: Sequence[Relation], source: Source) -> PartitionKeys:
        keys = {}
        for index, (table, relation) in enumerate(zip(tables, relations, strict=True)):
            for place in table.args.get(PARTITION_BY) or ():
                if index in keys:
                    raise source.not_yet(place, "PARTITION BY of an input with several keys is", fix="leave PARTITION BY out")
                bound = ScalarBinder(source, ScopeNames(source, [relation])).bind(place, event_clause="PARTITION BY")
                keys[index] = PartitionKey(place, _of_relation(index, bound))
        return cls(source, keys)

    def check_joins(self, on_conditions: Sequence[OnCondition]) -> None:
        for right_index, on in enumerate(on_conditions, start=1):
            left = [key for index, key in self.by_relation.items() if index < right_index]
            right = [key for index, key in self.by_relation.items() if index == right_index]
            for keys, compared in ((left, [left for left, _ in on.keys]), (right, [right for _, right in on.keys])):
                if on.bounds is not None and keys and not any(key.expr in compared for key in keys):
                    fix = f"compare it in ON with that of the other side, {_LEAVE_OUT}"
                    raise self._error("JOIN", keys[0], "ON does not compare it, so rows of different keys would meet", fix)

    def check_analytics(self, analytics: Sequence[Analytic]) -> None:
        keys = list(self.by_relation.values())
        for analytic in analytics:
            # A join compares the keys of its sides, so one of them is enough; the same holds for grouping keys.
            if keys and not any(key.expr in analytic.partition for key in keys):
                what = f"{analytic.function.upper()} looks back on the rows of all keys"
                raise self._error("OVER", keys[0], what, f"write OVER (PARTITION BY {keys[0].expr} ...), {_LEAVE_OUT}")

    def check_groups(self, grouping_keys: Sequence[Expr], window: AnyWindow | WindowSet) -> None:
        keys = list(self.by_relation.values())
        grouped = [key for key in keys if key.expr in grouping_keys]
        if keys and not grouped:
            raise self._error("GROUP", keys[0], "it is not among the grouping keys", f"add it to GROUP BY, {_LEAVE_OUT}")
        windows = window.windows if isinstance(window, WindowSet) else (window,)
        sessions = [window for window in windows if isinstance(window, Session)]
        for key in grouped:
            if any(grouping_keys.index(key.expr) not in session.partition for session in sessions):
                fix = f"write SessionWindow(...) OVER (PARTITION BY {key.expr}), {_LEAVE_OUT}"
                raise self._error("GROUP", key, "the sessions are those of all keys together", fix)

    def _error(self, code: str, key: PartitionKey, what: str, fix: str) -> Exception:
        return self.source.error(code, offset_of(key.place), f"PARTITION BY {key.expr}: {what}", fix=fix)


def _of_relation(index: int, expr: Expr) -> Expr:
    return replace_parts(expr, lambda part: replace(part, index=index) if isinstance(part, RelationLeaf) else None)
