"""
Binding of the list after SELECT: the columns of a result, their names, and the meaning of ``*``.

``*`` and ``name.*`` stand for the columns of a step. The members of an input and of a record (``place.*``) are known only when an event
arrives: such a star is a column named ``*`` that holds a record, and each result shows the record's members in its place. Law: a name
occurs once in a result, ignoring case; a name that the script writes wins over all names from stars, and an earlier star over a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from query.columns.splicing import STAR
from query.plan.nodes import Column
from query.sql.scopes import Relation, record_of
from tidegate.language.expressions.binding.local_times import as_column
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.syntax.errors import Source, offset_of
from tidegate.language.expressions.tree import Expr

# Most columns of one SELECT.
COLUMNS_MAX = 1_000


@dataclass(frozen=True)
class SelectListBinder:
    """Binds the list after SELECT; *relations* are the candidates for a star."""

    source: Source
    binder: ScalarBinder
    relations: Sequence[Relation]

    def bind(self, select: exp.Select, *, grouped: bool = False) -> tuple[Column, ...]:
        """Bind the columns of a SELECT. Raises QueryError: a name occurs twice, a star is misplaced, or an expression is wrong."""
        if len(select.expressions) > COLUMNS_MAX:
            message = f"SELECT has {len(select.expressions)} columns, more than {COLUMNS_MAX}"
            raise self.source.error("SIZE", select, message, fix="select fewer, or * and what is new")
        if not select.expressions:
            raise self.source.error("SYNTAX", select, "SELECT names no columns", fix="name columns, or write *")
        chosen = _SelectList(self.source)
        for number, node in enumerate(select.expressions, start=1):
            prefix = star_of(node)
            if prefix is None:
                value = self.binder.bind(node.this if isinstance(node, exp.Alias) else node)
                chosen.add(self._name(node, number), as_column(value, is_result=False), node)
            elif grouped:
                raise self.source.error("GROUP", node, "* cannot be selected from groups", fix="name the keys and aggregates")
            else:
                chosen.spread(self._spread_star(prefix, offset_of(node)))
        return chosen.columns

    def _spread_star(self, prefix: tuple[str, ...], offset: int) -> list[tuple[str, Expr]]:
        if not prefix and len(self.relations) > 1:
            return [(relation.name, record_of(relation, index)) for index, relation in enumerate(self.relations)]
        for index, relation in enumerate(self.relations):
            if not prefix or (len(prefix) == 1 and prefix[0].lower() in relation.names):
                return relation.local_columns(index) if relation.schema is None else [(STAR, relation.whole_row(index))]
        return [(STAR, self.binder.names.resolve(prefix, offset))]

    def _name(self, node: exp.Expr, number: int) -> str:
        """Return the name of an output column: its alias, else the field's or function's name, else Column and its number."""
        if isinstance(node, exp.Alias):
            alias = node.args["alias"]
            if alias.args.get("quoted") and str(node.alias).isdigit() and not self._has_as(node):
                message, fix = f"[{node.alias}] would only name the column", "write GetArrayElement(array, index), or AS before a name"
                raise self.source.error("SYNTAX", alias, message, fix=fix, example="GetArrayElement(readings, 0)")
            if node.alias in ("", STAR):
                raise self.source.error("NAME", node, "a column cannot be named * or nothing", fix="give it a name")
            return str(node.alias)
        inner = node.expression if isinstance(node, exp.Dot) else node
        if isinstance(inner, (exp.Column, exp.Identifier, exp.Anonymous)) and inner.name:
            return str(inner.name)
        return f"Column{number}"

    def _has_as(self, node: exp.Alias) -> bool:
        return self.source.text[: offset_of(node.args["alias"])].rstrip().upper().endswith("AS")


def star_of(node: exp.Expr) -> tuple[str, ...] | None:
    """Return the names before a star: empty for ``*``, ``a, b`` for ``a.b.*``; None if *node* is no star."""
    if isinstance(node, exp.Star):
        return ()
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return tuple(part.name for part in node.parts[:-1])
    return None


@dataclass
class _SelectList:
    source: Source
    # By their names in lower case; rows whose columns are not known have a number beside it. The last is whether a star gave it.
    _entries: dict[tuple[str, int], tuple[str, Expr, bool]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name, expr) for name, expr, _ in self._entries.values())

    def add(self, name: str, expr: Expr, node: exp.Expr) -> None:
        key = (name.lower(), 0)
        if key in self._entries and not self._entries[key][2]:
            fix = f"rename it with AS, e.g. AS {name}_{len(self._entries) + 1}"
            raise self.source.error("NAME", node, f"two columns are named {name}", fix=fix)
        self._entries.pop(key, None)
        self._entries[key] = (name, expr, False)

    def spread(self, columns: Sequence[tuple[str, Expr]]) -> None:
        """Add the columns of a star."""
        for name, expr in columns:
            self._entries.setdefault((name.lower(), len(self._entries) if name == STAR else 0), (name, expr, True))
