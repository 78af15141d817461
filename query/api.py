"""
Queries written in Python: the same language, put together by functions instead of as text.

::

    from query.api import avg, column, count, stream, tumbling, window_end

    flights = stream("flights", timestamp_by="scheduled", over="origin")
    departures = (
        flights.where(column("distance") > 100)
        .group_by("origin", tumbling("1h"))
        .select(origin="origin", window_end=window_end(), departures=count(), mean_delay=avg(column("delay")))
    )
    query = departures.into("departures")

A :class:`Query` is a script: :attr:`Query.sql` shows it, and everything after that - plan, checks, errors, bytes - is the
same as for one from a file. A ``str`` where a value is asked for is an expression of the language (``"delay * 2"``); a text
is :func:`literal`; numbers and booleans stand for themselves. Streams that are built on others become steps (WITH).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ordering.ticks import DAY_US, HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US, parse_duration

_UNITS = (("day", DAY_US), ("hour", HOUR_US), ("minute", MINUTE_US), ("second", SECOND_US), ("millisecond", MILLISECOND_US))


@dataclass(frozen=True, eq=False)
class Value:
    """An expression: its text in the language."""

    sql: str

    def _with(self, operator: str, other: Operand) -> Value:
        return Value(f"({self.sql} {operator} {_operand(other)})")

    def __add__(self, other: Operand) -> Value:
        return self._with("+", other)

    def __sub__(self, other: Operand) -> Value:
        return self._with("-", other)

    def __mul__(self, other: Operand) -> Value:
        return self._with("*", other)

    def __truediv__(self, other: Operand) -> Value:
        return self._with("/", other)

    def __mod__(self, other: Operand) -> Value:
        return self._with("%", other)

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._with("=", other)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        return self._with("<>", other)

    def __lt__(self, other: Operand) -> Value:
        return self._with("<", other)

    def __le__(self, other: Operand) -> Value:
        return self._with("<=", other)

    def __gt__(self, other: Operand) -> Value:
        return self._with(">", other)

    def __ge__(self, other: Operand) -> Value:
        return self._with(">=", other)

    def __and__(self, other: Value) -> Value:
        return self._with("AND", other)

    def __or__(self, other: Value) -> Value:
        return self._with("OR", other)

    def __invert__(self) -> Value:
        return Value(f"(NOT {self.sql})")

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth of its own: join conditions by & and |, not by and, or, not")

    def is_null(self) -> Value:
        """Tell whether there is no value."""
        return Value(f"({self.sql} IS NULL)")

    def is_in(self, *options: Operand) -> Value:
        """Tell whether it is one of some values."""
        return Value(f"({self.sql} IN ({', '.join(map(_operand, options))}))")

    def between(self, low: Operand, high: Operand) -> Value:
        """Tell whether it lies between two values, both included."""
        return Value(f"({self.sql} BETWEEN {_operand(low)} AND {_operand(high)})")

    def like(self, pattern: str) -> Value:
        """Tell whether it matches a pattern of ``%``, ``_`` and ``[...]``."""
        return self._with("LIKE", literal(pattern))

    def cast(self, to: str, *, lenient: bool = False) -> Value:
        """Convert it to an ASA type; with *lenient* what cannot be converted is NULL instead of a dead letter."""
        return Value(f"{'TRY_CAST' if lenient else 'CAST'}({self.sql} AS {to})")

    def over(self, limit: str, *, partition_by: tuple[Expression, ...] = (), when: Expression = None) -> Value:
        """
        Take an aggregate of the events up to each one, itself included, instead of a group's: ``avg("v").over("5m")``.

        Args:
            limit: How much older events may be, such as ``5m``.
            partition_by: What they have in common with the event.
            when: What they must meet.
        """
        return Value(f"{self.sql} OVER ({_over(limit, partition_by, when)})")

    def member(self, *names: str) -> Value:
        """Return a member of a record."""
        return Value(".".join((self.sql, *map(_quoted, names))))


Operand = Value | str | int | float | bool | None
"""What an operator may meet; here a ``str`` is a text."""
Expression = Value | str | int | float | bool | None
"""What stands for a value where one is asked for; here a ``str`` is an expression of the language."""


def literal(value: str | float | bool | None) -> Value:
    """Return a constant."""
    if value is None:
        return Value("NULL")
    if isinstance(value, bool):
        return Value("CAST(1 AS bit)" if value else "CAST(0 AS bit)")
    return Value("'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value))


def column(*path: str) -> Value:
    """Return a field, or a member of one: ``column("payload", "speed")``."""
    return Value(".".join(map(_quoted, path)))


def call(function: str, *args: Expression) -> Value:
    """Call any function of the language, or one that a package offers (``udf.name``)."""
    return Value(f"{function}({', '.join(map(_expression, args))})")


def length(time: str) -> Value:
    """Return a length of time such as ``5m``, as operators take it (:meth:`Stream.through`)."""
    return Value("{}, {}".format(*_length(time)))


def window_end() -> Value:
    """Return System.Timestamp(): of a group its window's end, of an event its own time."""
    return Value("System.Timestamp()")


def count(value: Expression = "*") -> Value:
    """Count rows, or the values that are not NULL."""
    return call("COUNT", value)


def sum_(value: Expression) -> Value:
    """Add values up."""
    return call("SUM", value)


def avg(value: Expression) -> Value:
    """Return the mean."""
    return call("AVG", value)


def min_(value: Expression) -> Value:
    """Return the least value."""
    return call("MIN", value)


def max_(value: Expression) -> Value:
    """Return the greatest value."""
    return call("MAX", value)


def lag(value: Expression, limit: str, *, offset: int = 1, partition_by: tuple[Expression, ...] = (), when: Expression = None) -> Value:
    """Return the value *offset* events ago, no longer ago than *limit* (``5m``), of the same partition, among those that meet *when*."""
    return Value(f"LAG({_expression(value)}, {offset}) OVER ({_over(limit, partition_by, when)})")


def last(value: Expression, limit: str, *, partition_by: tuple[Expression, ...] = (), when: Expression = None) -> Value:
    """Return the value of the last event that meets *when*, the present one included, no longer ago than *limit*."""
    return Value(f"LAST({_expression(value)}) OVER ({_over(limit, partition_by, when)})")


def _over(limit: str, partition_by: tuple[Expression, ...], when: Expression) -> str:
    unit, length = _length(limit)
    parts = [f"PARTITION BY {', '.join(map(_expression, partition_by))}"] if partition_by else []
    parts.append(f"LIMIT DURATION({unit}, {length})")
    return " ".join([*parts, f"WHEN {_expression(when)}"] if when is not None else parts)


def tumbling(size: str, offset: str | None = None) -> Value:
    """Return a tumbling window of a length such as ``1h``."""
    return _window("TumblingWindow", Duration=size, **({"Offset": offset} if offset else {}))


def hopping(size: str, hop: str, offset: str | None = None) -> Value:
    """Return a hopping window."""
    return _window("HoppingWindow", Duration=size, Hop=hop, **({"Offset": offset} if offset else {}))


def sliding(size: str) -> Value:
    """Return a sliding window."""
    return Value("SlidingWindow({}, {})".format(*_length(size)))


def session(timeout: str, max_duration: str, *, partition_by: tuple[Expression, ...] = ()) -> Value:
    """Return a session window; without *partition_by* one session serves all groups."""
    unit_us = min(parse_duration(timeout), parse_duration(max_duration))
    unit, size_us = next(
        (each for each in _UNITS if unit_us % each[1] == 0 and parse_duration(max_duration) % each[1] == 0), ("microsecond", 1)
    )
    lengths = [parse_duration(each) // size_us for each in (timeout, max_duration)]
    over = f" OVER (PARTITION BY {', '.join(map(_expression, partition_by))})" if partition_by else ""
    return Value(f"SessionWindow({unit}, {lengths[0]}, {lengths[1]}){over}")


def _window(name: str, **lengths: str) -> Value:
    return Value(f"{name}({', '.join('{}({}, {})'.format(part, *_length(length)) for part, length in lengths.items())})")


def _length(text: str) -> tuple[str, int]:
    """Return a duration in the largest unit that says it in a whole number."""
    length_us = parse_duration(text)
    unit, size_us = next(((unit, size) for unit, size in _UNITS if length_us % size == 0), ("microsecond", 1))
    return unit, length_us // size_us


@dataclass(frozen=True)
class Stream:
    """
    Rows: of an input, or of what was built on others. Every method returns a new one.

    Args:
        source: What stands after FROM.
        steps: The streams it is built on, by the name it gives them.
        condition: What its rows must meet; None: nothing.
        reading: TIMESTAMP BY and OVER of an input.
    """

    source: str
    steps: tuple[tuple[str, Step], ...] = ()
    condition: Value | None = None
    reading: str = ""

    def where(self, condition: Expression) -> Stream:
        """Keep the rows for which *condition* is true."""
        met = Value(f"({_expression(condition)})")
        return replace(self, condition=met if self.condition is None else self.condition & met)

    def through(self, operator: str, *arguments: Operand) -> Stream:
        """
        Return the rows that an operator gives: one of ours, or one that a package offers.

        Args:
            operator: Its name.
            arguments: Columns (:func:`column`), constants, and lengths of time (:func:`length`).

        Raises:
            ValueError: The rows are filtered; name what is left first, ``.select().named("few")``.
        """
        if self.condition is not None:
            raise ValueError(f'{operator} takes all rows of a stream: name those that are left first, .select().named("few")')
        return replace(self, source=f"{operator}({', '.join([self.source, *map(_operand, arguments)])})")

    def shifted(self, by: str) -> Stream:
        """Return the rows, each later by a length of time such as ``5m``."""
        return self.through("shift", length(by))

    def active(self, lifetime: str, *keys: str, ends: str = "", edge: str = "", span: str = "") -> Stream:
        """
        Return how many rows of each group are alive, whenever one begins or ends to live: columns *keys* and ``active``.

        Args:
            lifetime: How long a row lives, at most.
            keys: The columns by which rows are grouped.
            ends: The column that says when a row ends to live.
            edge: The column that is not NULL in rows that end the lives of others.
            span: The column that tells whose lives these are; else it is all of the group.
        """
        words = [Value(f"{word} = {column(name).sql}") for word, name in (("ends", ends), ("edge", edge), ("span", span)) if name]
        return self.through("active", length(lifetime), *words, *map(column, keys))

    def group_by(self, *keys: Expression) -> Groups:
        """Group by expressions and one window."""
        return Groups(self, tuple(map(_expression, keys)))

    def select(self, **columns: Expression) -> Step:
        """Return rows of these columns; of none of them: the rows as they are."""
        return Step(self, _columns(columns))

    def into(self, output: str) -> Query:
        """Write the rows as they are to an output."""
        return self.select().into(output)


@dataclass(frozen=True)
class Groups:
    """Groups of rows, in windows of time."""

    stream: Stream
    keys: tuple[str, ...]
    condition: Value | None = None

    def having(self, condition: Expression) -> Groups:
        """Keep the groups for which *condition* is true."""
        met = Value(f"({_expression(condition)})")
        return replace(self, condition=met if self.condition is None else self.condition & met)

    def select(self, **columns: Expression) -> Step:
        """Return one row a group, of these columns."""
        having = f"\nHAVING {self.condition.sql}" if self.condition is not None else ""
        return Step(self.stream, _columns(columns), f"\nGROUP BY {', '.join(self.keys)}{having}")


@dataclass(frozen=True)
class Step:
    """A SELECT: rows that go to an output, or that others are built on."""

    stream: Stream
    columns: str
    grouping: str = ""
    united: tuple[Step, ...] = ()

    def union(self, *others: Step) -> Step:
        """Put the rows of others of as many columns beside these, duplicates kept."""
        return replace(self, united=(*self.united, *others))

    def named(self, name: str) -> Stream:
        """Return its rows as a stream that others can be built on; *name* is what scripts and plans call it."""
        return Stream(_quoted(name), ((name, self),))

    def into(self, output: str) -> Query:
        """Write the rows to an output."""
        return Query(((output, self),))

    def text(self, into: str = "") -> str:
        """Return the SELECT."""
        where = f"\nWHERE {self.stream.condition.sql}" if self.stream.condition is not None else ""
        target = f"\nINTO {_quoted(into)}" if into else ""
        own = f"SELECT {self.columns}{target}\nFROM {self.stream.source}{self.stream.reading}{where}{self.grouping}"
        return "\nUNION\n".join([own, *(other.text() for other in self.united)])

    def below(self) -> Iterator[tuple[str, Step]]:
        """Yield the steps it is built on, each after those it is built on itself."""
        for stream in (self.stream, *(other.stream for other in self.united)):
            for name, step in stream.steps:
                yield from step.below()
                yield name, step


@dataclass(frozen=True)
class Query:
    """One or more outputs and what they hold; ``+`` joins queries into one job that computes what they share once."""

    outputs: tuple[tuple[str, Step], ...] = field(default=())

    def __add__(self, other: Query) -> Query:
        return Query(self.outputs + other.outputs)

    @property
    def sql(self) -> str:
        """
        The script.

        Raises:
            ValueError: Two steps have the same name.
        """
        steps: dict[str, Step] = {}
        for name, step in (each for _, last_step in self.outputs for each in last_step.below()):
            if steps.setdefault(name, step) is not step:
                raise ValueError(f"two steps are named {name}")
        bodies = ",\n".join(f"{_quoted(name)} AS (\n{step.text()}\n)" for name, step in steps.items())
        first = f"WITH {bodies}\n" if bodies else ""
        return first + ";\n".join(step.text(name) for name, step in self.outputs) + "\n"


def stream(name: str, *, timestamp_by: Expression = None, over: Expression = None) -> Stream:
    """
    Return the events of an input.

    Args:
        name: The input, or the output of another query.
        timestamp_by: Its event time, as its settings have it.
        over: The key of its substreams.
    """
    by = f" TIMESTAMP BY {_expression(timestamp_by)}" if timestamp_by is not None else ""
    return Stream(_quoted(name), reading=by + (f" OVER {_expression(over)}" if over is not None else ""))


def _columns(columns: dict[str, Expression]) -> str:
    return ", ".join(f"{_expression(value)} AS {_quoted(name)}" for name, value in columns.items()) or "*"


def _expression(value: Expression) -> str:
    return value if isinstance(value, str) else _operand(value)


def _operand(value: Operand) -> str:
    return value.sql if isinstance(value, Value) else literal(value).sql


def _quoted(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"
