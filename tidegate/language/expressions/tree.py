"""
Expression trees: what a query computes from one row, as frozen values that print themselves.

Two expressions are equal if they mean the same: names are compared ignoring case, positions in the script do not count. A *leaf* is a value
from outside the expression: before aggregation a payload field, a column of a step's rows, the event's system timestamp or its partition;
after aggregation a grouping key, an aggregate or the window's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum

from ordering.ticks import DAY_US, HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US
from tidegate.language.expressions.kinds import Kind
from tidegate.language.time_zones.zone import Zone


@dataclass(frozen=True, slots=True)
class Expr:
    """Root of all expressions; ``offset`` is the character offset in the script, or -1."""

    offset: int = field(default=-1, compare=False, repr=False, kw_only=True)

    @property
    def parts(self) -> tuple[Expr, ...]:
        return ()

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        """Return a copy of this expression with its parts replaced by *parts*."""
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
    """A payload field by its path. ``path`` keeps the script's spelling; ``folded`` (lower case) decides equality."""

    path: tuple[str, ...] = field(compare=False)
    folded: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folded", tuple(name.lower() for name in self.path))

    def __str__(self) -> str:
        return ".".join(name if name.isidentifier() else f"[{name}]" for name in self.path)


@dataclass(frozen=True, slots=True)
class KeyList(Expr):
    """The keys of an OVER with several keys. Rows have a value of each key, but none of the list."""

    keys: tuple[Expr, ...]

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.keys

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, keys=parts)

    def __str__(self) -> str:
        return ", ".join(map(str, self.keys))


def keys_of(over: Expr | None) -> tuple[Expr, ...]:
    """Return the keys of OVER: none without it."""
    return over.keys if isinstance(over, KeyList) else () if over is None else (over,)


def key_list(keys: Sequence[Expr]) -> Expr:
    """Return the expression of an OVER with these *keys*, one or more."""
    return keys[0] if len(keys) == 1 else KeyList(tuple(keys), offset=keys[0].offset)


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
class Arrival(Leaf):
    """The event's arrival time."""

    def __str__(self) -> str:
        return "EventEnqueuedUtcTime"


@dataclass(frozen=True, slots=True)
class RecordOffset(Leaf):
    """The offset of the event's record in its input partition, which a replay repeats."""

    def __str__(self) -> str:
        return "Offset"


@dataclass(frozen=True, slots=True)
class EventId(Leaf):
    """A text that tells the events of an input apart: its partition and its record's offset."""

    def __str__(self) -> str:
        return "EventId"


@dataclass(frozen=True, slots=True)
class Header(Leaf):
    """The value of a header of the event's record, by its exact name."""

    name: str

    def __str__(self) -> str:
        return f"[User].[{self.name}]"


@dataclass(frozen=True, slots=True)
class Payload(Leaf):
    """A whole row as a record of the members *names*; without names the payload of an event."""

    names: tuple[str, ...] = ()
    columns: tuple[Expr, ...] = ()

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.columns

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, columns=parts)

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class Numbered(Leaf):
    """Value number ``index`` of a row or group; prints as ``title``, its expression. ``kind`` is None if rows differ in kind."""

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
    """A column of the rows that another step of the query produces."""


@dataclass(frozen=True, slots=True)
class WindowEnd(Leaf):
    """System.Timestamp() of a window's result: the window's end."""

    def __str__(self) -> str:
        return "System.Timestamp()"


@dataclass(frozen=True, slots=True)
class ComputedCall(Leaf):
    """The value of ``expr``, computed before the expression around it. It exists only during evaluation, never in a plan."""

    expr: Expr

    def __str__(self) -> str:
        return str(self.expr)


@dataclass(frozen=True, slots=True)
class WindowId(Leaf):
    """System.Window().Id of a window's result: the id that Windows(...) gives the window, else NULL."""

    def __str__(self) -> str:
        return "System.Window().Id"


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
    """The unit that DATEADD, DATEDIFF and DATEPART take as a bare word."""

    unit: str

    def __str__(self) -> str:
        return self.unit


_SPELLINGS = {
    "is null": "{0} IS NULL",
    "negate": "-({0})",
    "~": "~({0})",
    "not": "NOT ({0})",
    "in": "{0} IN ({rest})",
    "between": "{0} BETWEEN {1} AND {2}",
    "like each": "{0} LIKE {1}",
    "patindex each": "PATINDEX({0}, {1})",
    "regexmatch each": "REGEXMATCH({0}, {1})",
}


def _is_infix(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name not in _SPELLINGS and (expr.name in ("and", "or", "like") or not expr.name[0].isalpha())


def called(registered: str) -> str:
    """Return the name by which scripts call a function; a registered one may say behind @ which text of that name it is."""
    return registered.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function or operator of :mod:`tidegate.language.expressions.functions.catalog` applied to arguments."""

    name: str
    args: tuple[Expr, ...]

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, args=parts)

    def __str__(self) -> str:
        args = [str(arg) for arg in self.args]
        if self.name in _SPELLINGS:
            return _SPELLINGS[self.name].format(*args, rest=", ".join(args[1:]))
        if _is_infix(self):
            return f" {self.name.upper()} ".join(f"({arg})" if _is_infix(part) else arg for part, arg in zip(self.args, args, strict=True))
        return f"{called(self.name).upper()}({', '.join(args)})"


@dataclass(frozen=True, slots=True)
class _Unary(Expr):
    """An expression of one part."""

    arg: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.arg,)

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, arg=parts[0])


@dataclass(frozen=True, slots=True)
class Property(_Unary):
    """A member of a record by its path, matched like a field of a payload; NULL if the value is no record."""

    path: tuple[str, ...] = field(compare=False)
    folded: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folded", tuple(name.lower() for name in self.path))

    def __str__(self) -> str:
        return f"{self.arg}.{Field(self.path)}"


class Requirement(Enum):
    """What a value has to be where it stands. NULL may stand everywhere."""

    CONDITION = "a condition"
    NUMBER = "a number"
    # What has an order: neither a record nor an array.
    COMPARABLE = "comparable"
    RECORD = "a record"
    ARRAY = "an array"


@dataclass(frozen=True, slots=True)
class Required(_Unary):
    """Its argument unchanged, if that meets the requirement, else the row fails. Binding puts it there; a script does not show it."""

    requirement: Requirement

    def __str__(self) -> str:
        return str(self.arg)


@dataclass(frozen=True, slots=True)
class OnlyKind(_Unary):
    """Its argument converted to ``kind``, if it is accepted as that; a row with another kind fails. Not shown either."""

    kind: Kind

    def __str__(self) -> str:
        return str(self.arg)


@dataclass(frozen=True, slots=True)
class CaseFolded(_Unary):
    """A text in lower case, any other value unchanged: stands for its argument in comparisons, if a script ignores case."""

    def __str__(self) -> str:
        return str(self.arg)


class ZoneForm(Enum):
    """What is computed of a datetime and a zone."""

    # The datetime itself; the script reads it by this zone's clock.
    TIME = "time"
    # The reading of the clock, as a datetime.
    CLOCK = "clock"
    # The instant at which the clock shows such a reading.
    MOMENT = "moment"
    # The reading as a text, with its offset from UTC.
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Zoned(_Unary):
    """A datetime in a time zone (:mod:`tidegate.language.expressions.binding.local_times`)."""

    zone: Zone
    form: ZoneForm

    def __str__(self) -> str:
        if self.form is ZoneForm.MOMENT:
            # Its argument is computed from a reading of the same clock, and prints the zone.
            return str(self.arg)
        local = f"{self.arg} AT TIME ZONE '{self.zone}'"
        return f"CAST({local} AS nvarchar(max))" if self.form is ZoneForm.TEXT else local


@dataclass(frozen=True, slots=True)
class Cast(_Unary):
    """A conversion to ``kind``; failing values are NULL if ``lenient`` (TRY_CAST). ``declared``: to a declared type, not printed."""

    kind: Kind
    lenient: bool = False
    declared: bool = False

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

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        return replace(self, whens=tuple(zip(parts[:-1:2], parts[1::2], strict=True)), otherwise=parts[-1])

    def __str__(self) -> str:
        whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.whens)
        return f"CASE {whens} ELSE {self.otherwise} END"


@dataclass(frozen=True, slots=True)
class Aggregate(Expr):
    """An aggregate over the rows of a group."""

    # A name of :data:`tidegate.language.expressions.functions.catalog.AGGREGATES` or of an extension's aggregate.
    function: str
    # The argument; None for COUNT(*) and for percentiles, whose argument is in *order*.
    arg: Expr | None
    distinct: bool = False
    # The sort keys of the rows, each with True if the largest come first.
    order: tuple[tuple[Expr, bool], ...] = ()
    # For CollectTop the number of rows, for percentiles the fraction.
    parameter: Decimal | None = None
    # Further arguments of an extension's aggregate (``uda.name``).
    more_args: tuple[Expr, ...] = ()
    # For anomaly detection the size of the history and the mode; *parameter* is the confidence.
    options: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (*([] if self.arg is None else [self.arg]), *self.more_args, *(key for key, _ in self.order))

    def with_parts(self, parts: tuple[Expr, ...]) -> Aggregate:
        keys = parts[len(parts) - len(self.order) :]
        order = tuple((key, descending) for key, (_, descending) in zip(keys, self.order, strict=True))
        more_args = parts[1 : 1 + len(self.more_args)]
        return replace(self, arg=None if self.arg is None else parts[0], order=order, more_args=more_args)

    @property
    def call(self) -> str:
        parameter = [] if self.parameter is None else [str(self.parameter)]
        if self.arg is None:
            arg = [] if self.order else ["*"]
        else:
            # COLLECT() takes whole rows, which print as *.
            arg = [text] if (text := str(self.arg)) != "*" else []
            arg += [*map(str, self.more_args), *self.options]
        return f"{called(self.function).upper()}({'DISTINCT ' if self.distinct else ''}{', '.join(parameter + arg)})"

    @property
    def order_by(self) -> str:
        keys = [f"{key} DESC" if descending else str(key) for key, descending in self.order]
        return f"ORDER BY {', '.join(keys)}" if keys else ""

    def __str__(self) -> str:
        return self.call + (f" OVER ({self.order_by})" if self.order else "")


@dataclass(frozen=True, slots=True)
class Analytic(Expr):
    """A function of this row and earlier rows: those of its *partition* that meet *when* and are at most *limit_us* older."""

    # ``lag``, ``last``, ``isfirst`` or an aggregate's name.
    function: str
    arg: Expr | None
    partition: tuple[Expr, ...]
    # Microseconds; for ISFIRST the length of its intervals.
    limit_us: int
    when: Expr | None = None
    # For LAG, how many rows back.
    rows_back: int = 0
    # For LAG and LAST, the value if there is no such row; None means NULL.
    default: Expr | None = None
    # The aggregate over the rows; None for LAG, LAST and ISFIRST, which have *arg* instead.
    aggregate: Aggregate | None = None

    @property
    def inputs(self) -> tuple[Expr, ...]:
        if self.aggregate is not None:
            return self.aggregate.parts
        return () if self.arg is None else (self.arg,)

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (*self.partition, *self.inputs, *(part for part in (self.when, self.default) if part is not None))

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        rest = iter(parts)
        partition = tuple(next(rest) for _ in self.partition)
        inputs = tuple(next(rest) for _ in self.inputs)
        when, default = (None if part is None else next(rest) for part in (self.when, self.default))
        aggregate = None if self.aggregate is None else self.aggregate.with_parts(inputs)
        arg = None if self.arg is None else inputs[0]
        return replace(self, arg=arg, partition=partition, when=when, default=default, aggregate=aggregate)

    def __str__(self) -> str:
        limit = _duration_arguments(self.limit_us)
        over = [f"PARTITION BY {', '.join(map(str, self.partition))}"] if self.partition else []
        over += [self.aggregate.order_by] if self.aggregate is not None and self.aggregate.order else []
        over += [] if self.function == "isfirst" else [f"LIMIT DURATION({limit})"]
        over += [f"WHEN {self.when}"] if self.when is not None else []
        return self._call + (f" OVER ({' '.join(over)})" if over else "")

    @property
    def _call(self) -> str:
        if self.aggregate is not None:
            return self.aggregate.call
        arguments = [_duration_arguments(self.limit_us) if self.arg is None else str(self.arg)]
        arguments += [str(self.rows_back)] if self.function == "lag" and (self.rows_back != 1 or self.default) else []
        arguments += [str(self.default)] if self.default is not None else []
        return f"{self.function.upper()}({', '.join(arguments)})"


# Length of each unit of a duration, microseconds; the largest first.
UNITS_US = {"day": DAY_US, "hour": HOUR_US, "minute": MINUTE_US, "second": SECOND_US, "millisecond": MILLISECOND_US, "microsecond": 1}


@dataclass(frozen=True, slots=True)
class MatchValue(Expr):
    """A value of the rows of one match of MATCH_RECOGNIZE."""

    # ``value`` (of the row that is tested; in MEASURES of the last row), ``first``, ``last``, ``classifier``, or the name of *aggregate*'s
    # function.
    function: str
    # The name in PATTERN whose rows count, in lower case; None: all rows of the match.
    variable: str | None
    # The value of a row; None for the classifier and for aggregates.
    arg: Expr | None
    # The aggregate over the rows.
    aggregate: Aggregate | None = None

    @property
    def parts(self) -> tuple[Expr, ...]:
        if self.aggregate is not None:
            return self.aggregate.parts
        return () if self.arg is None else (self.arg,)

    def with_parts(self, parts: tuple[Expr, ...]) -> Expr:
        if self.aggregate is not None:
            return replace(self, aggregate=self.aggregate.with_parts(parts))
        return replace(self, arg=parts[0] if parts else None)

    def __str__(self) -> str:
        of = "" if self.variable is None else f"{self.variable}."
        if self.function == "value":
            return f"{of}{self.arg}"
        if self.aggregate is not None:
            return f"{self.aggregate}{'' if self.variable is None else f' of {self.variable}'}"
        return f"{self.function.upper()}({'' if self.arg is None else f'{of}{self.arg}'})"


def _duration_arguments(duration_us: int) -> str:
    unit, unit_us = next((unit, us) for unit, us in UNITS_US.items() if duration_us % us == 0)
    return f"{unit}, {duration_us // unit_us}"


def replace_parts(expr: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """Return *expr* with each outermost part replaced by the result of *change*, unless that is None."""
    replacement = change(expr)
    if replacement is not None:
        return replacement
    parts = tuple(replace_parts(part, change) for part in expr.parts)
    return expr if all(new is old for new, old in zip(parts, expr.parts, strict=True)) else expr.with_parts(parts)
