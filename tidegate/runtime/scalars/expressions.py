"""
Expressions: what a query computes from one row, as frozen values that print themselves.

Two expressions are equal when they mean the same: names are compared ignoring case, places in the script do not count.
A *leaf* is a value that comes from outside the expression; before aggregation that is a payload field, a column of a step's
rows, the event's system timestamp or its partition; after it, a grouping key, an aggregate or the window's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tidegate.runtime.scalars.kinds import Kind


@dataclass(frozen=True, slots=True)
class Expr:
    """Root of all expressions. ``at`` is the offset in the script, or -1."""

    at: int = field(default=-1, compare=False, repr=False, kw_only=True)

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions directly inside this one."""
        return ()

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        """Return this expression with other parts in the places of its own."""
        assert not parts, f"{type(self).__name__} has no parts"
        return self

    def walk(self) -> Iterator[Expr]:
        """Yield this expression and everything inside it, outermost first."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def leaves(self) -> tuple[Expr, ...]:
        """Return the distinct leaves in order of appearance."""
        return tuple(dict.fromkeys(node for node in self.walk() if isinstance(node, Leaf)))


@dataclass(frozen=True, slots=True)
class Leaf(Expr):
    """A value from outside the expression."""


@dataclass(frozen=True, slots=True)
class Field(Leaf):
    """A payload field by its path. ``path`` keeps the script's spelling, ``folded`` decides equality."""

    path: tuple[str, ...] = field(compare=False)
    folded: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folded", tuple(name.lower() for name in self.path))

    def __str__(self) -> str:
        return ".".join(name if name.isidentifier() else f"[{name}]" for name in self.path)


@dataclass(frozen=True, slots=True)
class SystemTimestamp(Leaf):
    """System.Timestamp() of an event."""

    def __str__(self) -> str:
        return "System.Timestamp()"


@dataclass(frozen=True, slots=True)
class PartitionId(Leaf):
    """The event's input partition."""

    def __str__(self) -> str:
        return "PartitionId"


@dataclass(frozen=True, slots=True)
class Payload(Leaf):
    """A whole event as a record."""

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class Numbered(Leaf):
    """What a row or a group has under number ``index``; prints as the expression it comes from; no ``kind`` where values differ in it."""

    index: int
    title: str = field(compare=False)
    kind: Kind | None = field(compare=False)

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True, slots=True)
class Key(Numbered):
    """A grouping key."""


@dataclass(frozen=True, slots=True)
class Total(Numbered):
    """An aggregate."""


@dataclass(frozen=True, slots=True)
class Slot(Numbered):
    """A column of the rows that another step of the query gives."""


@dataclass(frozen=True, slots=True)
class SideTime(Leaf):
    """System.Timestamp() of one side of a join, 0 being the left one; DATEDIFF in ON names it by the side's name."""

    side: int

    def __str__(self) -> str:
        return f"System.Timestamp() of side {self.side + 1}"


@dataclass(frozen=True, slots=True)
class WindowEnd(Leaf):
    """System.Timestamp() of a window's result: the window's end."""

    def __str__(self) -> str:
        return "System.Timestamp()"


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant. NULL has kind ``Kind.NULL`` and value None."""

    value: str | int | float | bool | None
    kind: Kind

    def __str__(self) -> str:
        if self.kind is Kind.NULL:
            return "NULL"
        return "'" + str(self.value).replace("'", "''") + "'" if self.kind is Kind.NVARCHAR else repr(self.value)


@dataclass(frozen=True, slots=True)
class DatePart(Expr):
    """The unit that DATEADD, DATEDIFF and DATEPART take as a bare word; it has no value of its own."""

    unit: str

    def __str__(self) -> str:
        return self.unit


_SPELLINGS = {
    "is null": "{0} IS NULL",
    "condition": "{0}",
    "number": "{0}",
    "comparable": "{0}",
    "negate": "-({0})",
    "not": "NOT ({0})",
    "in": "{0} IN ({rest})",
    "between": "{0} BETWEEN {1} AND {2}",
}


def _is_infix(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name not in _SPELLINGS and (expr.name in ("and", "or", "like") or not expr.name.isidentifier())


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function or operator of :mod:`tidegate.runtime.scalars.functions` applied to arguments."""

    name: str
    args: tuple[Expr, ...]

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, args=parts)

    def __str__(self) -> str:
        args = [str(arg) for arg in self.args]
        if self.name in _SPELLINGS:
            return _SPELLINGS[self.name].format(*args, rest=", ".join(args[1:]))
        if self.name in ("and", "or", "like") or not self.name.isidentifier():
            return f" {self.name.upper()} ".join(f"({arg})" if _is_infix(part) else arg for part, arg in zip(self.args, args, strict=True))
        return f"{self.name.upper()}({', '.join(args)})"


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """
    A conversion to ``kind``. One that fails makes the row fail; with ``lenient`` (TRY_CAST) it gives NULL instead.

    ``declared`` marks the conversion of a field to its declared type, which prints as the field itself.
    """

    arg: Expr
    kind: Kind
    lenient: bool = False
    declared: bool = False

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, arg=parts[0])

    def __str__(self) -> str:
        if self.declared:
            return str(self.arg)
        return f"{'TRY_CAST' if self.lenient else 'CAST'}({self.arg} AS {self.kind.asa_name})"


@dataclass(frozen=True, slots=True)
class Case(Expr):
    """CASE: the value of the first condition that is true, else ``otherwise``."""

    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (*(part for when in self.whens for part in when), self.otherwise)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, whens=tuple(zip(parts[:-1:2], parts[1::2], strict=True)), otherwise=parts[-1])

    def __str__(self) -> str:
        whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.whens)
        return f"CASE {whens} ELSE {self.otherwise} END"


@dataclass(frozen=True, slots=True)
class Aggregate(Expr):
    """An aggregate over the rows of a group: ``count``, ``sum``, ``avg``, ``min`` or ``max``; ``arg`` None is COUNT(*)."""

    function: str
    arg: Expr | None

    @property
    def parts(self) -> tuple[Expr, ...]:
        return () if self.arg is None else (self.arg,)

    def rebuilt(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, arg=parts[0] if parts else None)

    def __str__(self) -> str:
        return f"{self.function.upper()}({'*' if self.arg is None else self.arg})"


def replaced(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Return *expr* with every outermost part for which *change* gives something replaced by it."""
    found = change(expr)
    if found is not None:
        return found
    parts = tuple(replaced(part, change) for part in expr.parts)
    return expr if all(new is old for new, old in zip(parts, expr.parts, strict=True)) else expr.rebuilt(parts)
