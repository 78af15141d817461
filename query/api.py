"""
Queries written in Python: the same language, composed by functions instead of as text.

::

    from query.api import avg, column, count, stream, tumbling, window_end

    flights = stream("flights", timestamp_by="scheduled", over="origin")
    departures = (
        flights.where(column("distance") > 100)
        .group_by("origin", tumbling("1h"))
        .select(origin="origin", window_end=window_end(), departures=count(), mean_delay=avg(column("delay")))
    )
    query = departures.into("departures")

A :class:`Query` is a script: :attr:`Query.sql` shows it, and plan, checks, errors and bytes are the same as for a script from a file. A
``str`` given as a value is an expression of the language (``"delay * 2"``); a text is :func:`literal`; numbers and booleans stand for
themselves. Streams that are built on others become steps (WITH).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import gcd, isfinite

from ordering.ticks import DAY_US, HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US, parse_duration

_UNITS = (("day", DAY_US), ("hour", HOUR_US), ("minute", MINUTE_US), ("second", SECOND_US), ("millisecond", MILLISECOND_US))


def _operator(symbol: str) -> Callable[[Value, Operand], Value]:
    return lambda left, right: Value(f"({left.sql} {symbol} {_operand(right)})")


@dataclass(frozen=True, eq=False)
class Value:
    """An expression: its text in the language."""

    sql: str

    __add__ = _operator("+")
    __sub__ = _operator("-")
    __mul__ = _operator("*")
    __truediv__ = _operator("/")
    __mod__ = _operator("%")
    __eq__ = _operator("=")  # type: ignore[assignment]
    __ne__ = _operator("<>")  # type: ignore[assignment]
    __lt__ = _operator("<")
    __le__ = _operator("<=")
    __gt__ = _operator(">")
    __ge__ = _operator(">=")
    __and__ = _operator("AND")
    __or__ = _operator("OR")

    def __invert__(self) -> Value:
        return Value(f"(NOT {self.sql})")

    def __bool__(self) -> bool:
        raise TypeError("an expression has no truth of its own: join conditions by & and |, not by and, or, not")

    def is_null(self) -> Value:
        return Value(f"({self.sql} IS NULL)")

    def is_in(self, *options: Operand) -> Value:
        return Value(f"({self.sql} IN ({', '.join(map(_operand, options))}))")

    def between(self, low: Operand, high: Operand) -> Value:
        """Return whether it lies between two values, both included."""
        return Value(f"({self.sql} BETWEEN {_operand(low)} AND {_operand(high)})")

    def like(self, pattern: str) -> Value:
        """Return whether it matches a pattern of ``%``, ``_`` and ``[...]``."""
        return Value(f"({self.sql} LIKE {literal(pattern).sql})")

    def cast(self, to: str, *, lenient: bool = False) -> Value:
        """Convert it to an ASA type; with *lenient* a value that cannot be converted becomes NULL instead of a dead letter."""
        return Value(f"{'TRY_CAST' if lenient else 'CAST'}({self.sql} AS {to})")

    def over(self, limit: str, *, partition_by: tuple[Expression, ...] = (), when: Expression = None) -> Value:
        """
        Aggregate the events up to each one, itself included, instead of a group: ``avg("v").over("5m")``.

        These events may be at most *limit* older, equal the event in the expressions *partition_by*, and meet the condition *when*.
        """
        return Value(f"{self.sql} OVER ({_over(limit, partition_by, when)})")

    def at_time_zone(self, zone: str) -> Value:
        """Return a datetime as the clocks of a zone such as ``Europe/Berlin`` show it."""
        return Value(f"({self.sql} AT TIME ZONE {literal(zone).sql})")

    def member(self, *names: str) -> Value:
        return Value(".".join((self.sql, *map(_quote, names))))


# An operand of an operator: a str is a text.
Operand = Value | str | int | float | bool | None
# An argument of a function: a str is an expression of the language.
Expression = Value | str | int | float | bool | None


def literal(value: str | float | bool | None) -> Value:
    """Return a constant. Raises ValueError: the language has no such float."""
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"the language has no infinity and no NaN: {value} cannot be written")
    if value is None:
        return Value("NULL")
    if isinstance(value, bool):
        return Value("CAST(1 AS bit)" if value else "CAST(0 AS bit)")
    return Value("'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value))


def column(*path: str) -> Value:
    """Return a field, or a member of one: ``column("payload", "speed")``."""
    return Value(".".join(map(_quote, path)))


def call(function: str, *args: Expression) -> Value:
    """Call any function of the language, or one of an installed package (``udf.name``)."""
    return Value(f"{function}({', '.join(map(_expression, args))})")


def length(time: str) -> Value:
    """Return a length of time such as ``5m`` as an argument of an operator (:meth:`Stream.through`)."""
    return Value("{}, {}".format(*_length(time)))


def window_end() -> Value:
    """Return System.Timestamp(): the window's end for a group, the system timestamp of an event."""
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
    """Return the value *offset* events ago, at most *limit* (``5m``) ago, in the same partition, among the events that meet *when*."""
    return Value(f"LAG({_expression(value)}, {offset}) OVER ({_over(limit, partition_by, when)})")


def last(value: Expression, limit: str, *, partition_by: tuple[Expression, ...] = (), when: Expression = None) -> Value:
    """Return the value of the last event that meets *when*, the present one included, at most *limit* ago."""
    return Value(f"LAST({_expression(value)}) OVER ({_over(limit, partition_by, when)})")


def _over(limit: str, partition_by: tuple[Expression, ...], when: Expression) -> str:
    unit, length = _length(limit)
    parts = [f"PARTITION BY {', '.join(map(_expression, partition_by))}"] if partition_by else []
    parts.append(f"LIMIT DURATION({unit}, {length})")
    return " ".join([*parts, f"WHEN {_expression(when)}"] if when is not None else parts)


def tumbling(size: str, offset: str | None = None, zone: str | None = None) -> Value:
    """
    Return a tumbling window of a length such as ``1h``; *offset* shifts it: ``-1us`` makes it include its start instead of its end. With a
    *zone* such as ``Europe/Berlin`` its ends are those of hours or days there.
    """
    return _window("TumblingWindow", offset, zone, Duration=size)


def hopping(size: str, hop: str, offset: str | None = None, zone: str | None = None) -> Value:
    """Return a hopping window; *offset* and *zone* as for :func:`tumbling`."""
    return _window("HoppingWindow", offset, zone, Duration=size, Hop=hop)


def sliding(size: str) -> Value:
    """Return a sliding window."""
    return Value("SlidingWindow({}, {})".format(*_length(size)))


def session(timeout: str, max_duration: str, *, partition_by: tuple[Expression, ...] = ()) -> Value:
    """Return a session window; without *partition_by* one session serves all groups."""
    lengths_us = [parse_duration(text) for text in (timeout, max_duration)]
    # Both lengths are written in one unit: the largest that divides both.
    unit, size_us = _largest_unit(gcd(*lengths_us))
    lengths = [length_us // size_us for length_us in lengths_us]
    over = f" OVER (PARTITION BY {', '.join(map(_expression, partition_by))})" if partition_by else ""
    return Value(f"SessionWindow({unit}, {lengths[0]}, {lengths[1]}){over}")


def _window(name: str, offset: str | None, zone: str | None, **lengths: str) -> Value:
    parts = ["{}({}, {})".format(part, *_length(length)) for part, length in lengths.items()]
    if offset:
        # Only an offset may be negative.
        unit, number = _length(offset.removeprefix("-"))
        parts.append(f"Offset({unit}, {'-' if offset.startswith('-') else ''}{number})")
    if zone:
        parts.append(f"TimeZone({literal(zone).sql})")
    return Value(f"{name}({', '.join(parts)})")


def _length(text: str) -> tuple[str, int]:
    length_us = parse_duration(text)
    unit, size_us = _largest_unit(length_us)
    return unit, length_us // size_us


def _largest_unit(length_us: int) -> tuple[str, int]:
    """Return the name and the length of the largest unit that divides a length."""
    return next(((unit, size_us) for unit, size_us in _UNITS if length_us % size_us == 0), ("microsecond", 1))


@dataclass(frozen=True)
class Stream:
    """The rows of an input, or of a step built on other streams. Every method returns a new stream."""

    # The text after FROM.
    source: str
    # The steps it is built on, with their names.
    steps: tuple[tuple[str, Step], ...] = ()
    condition: Value | None = None
    # TIMESTAMP BY and OVER of an input.
    reading: str = ""

    def where(self, condition: Expression) -> Stream:
        """Keep the rows for which *condition* is true."""
        return replace(self, condition=_both(self.condition, condition))

    def through(self, operator: str, *arguments: Operand) -> Stream:
        """
        Return the rows of an operator: ``shift``, ``active``, or one of an installed package. Raises ValueError: the rows are filtered.

        Its arguments are columns (:func:`column`), constants, and lengths of time (:func:`length`).
        """
        if self.condition is not None:
            raise ValueError(f'{operator} takes all rows of a stream: name those that are left first, .select().named("few")')
        return replace(self, source=f"{operator}({', '.join([self.source, *map(_operand, arguments)])})")

    def shifted(self, by: str) -> Stream:
        """Return the rows, each later by a length of time such as ``5m``."""
        return self.through("shift", length(by))

    def active(self, lifetime: str, *keys: str, ends: str = "", edge: str = "", span: str = "") -> Stream:
        """
        Return how many rows of each group are alive, at each begin and end of a life: columns *keys* and ``active``.

        Args:
            lifetime: The longest that a row lives.
            *keys: The columns by which rows are grouped.
            ends: The column with the end of a row's life.
            edge: The column that is not NULL in rows that end the lives of others.
            span: An edge ends only the lives of rows with its value in this column; without it, those of its whole group.
        """
        words = [Value(f"{word} = {column(name).sql}") for word, name in (("ends", ends), ("edge", edge), ("span", span)) if name]
        return self.through("active", length(lifetime), *words, *map(column, keys))

    def group_by(self, *keys: Expression) -> Groups:
        """Group by expressions and one window."""
        return Groups(self, tuple(map(_expression, keys)))

    def select(self, **columns: Expression) -> Step:
        """Return rows of these columns; without any, the unchanged rows."""
        return Step(self, _columns(columns))

    def into(self, output: str) -> Query:
        """Write the unchanged rows to an output."""
        return self.select().into(output)


@dataclass(frozen=True)
class Groups:
    """Groups of rows, in windows of time."""

    stream: Stream
    keys: tuple[str, ...]
    condition: Value | None = None

    def having(self, condition: Expression) -> Groups:
        """Keep the groups for which *condition* is true."""
        return replace(self, condition=_both(self.condition, condition))

    def select(self, **columns: Expression) -> Step:
        """Return one row of these columns per group."""
        having = f"\nHAVING {self.condition.sql}" if self.condition is not None else ""
        return Step(self.stream, _columns(columns), f"\nGROUP BY {', '.join(self.keys)}{having}")


@dataclass(frozen=True)
class Step:
    """A SELECT: rows that go to an output, or on which other steps are built."""

    stream: Stream
    columns: str
    grouping: str = ""
    united: tuple[Step, ...] = ()

    def union(self, *others: Step) -> Step:
        """Add the rows of other steps with as many columns, duplicates kept."""
        return replace(self, united=(*self.united, *others))

    def named(self, name: str) -> Stream:
        """Return its rows as a stream on which others can be built; *name* is its name in scripts and plans."""
        return Stream(_quote(name), ((name, self),))

    def into(self, output: str) -> Query:
        return Query(((output, self),))

    def text(self, into: str = "") -> str:
        where = f"\nWHERE {self.stream.condition.sql}" if self.stream.condition is not None else ""
        target = f"\nINTO {_quote(into)}" if into else ""
        own = f"SELECT {self.columns}{target}\nFROM {self.stream.source}{self.stream.reading}{where}{self.grouping}"
        return "\nUNION\n".join([own, *(other.text() for other in self.united)])

    def below(self) -> Iterator[tuple[str, Step]]:
        """Yield the steps it is built on, each after its own."""
        for stream in (self.stream, *(other.stream for other in self.united)):
            for name, step in stream.steps:
                yield from step.below()
                yield name, step


@dataclass(frozen=True)
class Query:
    """One or more outputs and their rows; ``+`` joins queries into one job that computes shared steps once."""

    outputs: tuple[tuple[str, Step], ...] = field(default=())

    def __add__(self, other: Query) -> Query:
        return Query(self.outputs + other.outputs)

    @property
    def sql(self) -> str:
        """The script. Raises ValueError: two steps have the same name."""
        steps: dict[str, Step] = {}
        for name, step in (pair for _, last_step in self.outputs for pair in last_step.below()):
            if steps.setdefault(name, step) is not step:
                raise ValueError(f"two steps are named {name}")
        bodies = ",\n".join(f"{_quote(name)} AS (\n{step.text()}\n)" for name, step in steps.items())
        first = f"WITH {bodies}\n" if bodies else ""
        return first + ";\n".join(step.text(name) for name, step in self.outputs) + "\n"


def stream(name: str, *, timestamp_by: Expression = None, over: Expression = None) -> Stream:
    """Return the events of an input or of the output of another query; *timestamp_by* is their event time, *over* their substream key."""
    by = f" TIMESTAMP BY {_expression(timestamp_by)}" if timestamp_by is not None else ""
    return Stream(_quote(name), reading=by + (f" OVER {_expression(over)}" if over is not None else ""))


def _columns(columns: dict[str, Expression]) -> str:
    return ", ".join(f"{_expression(value)} AS {_quote(name)}" for name, value in columns.items()) or "*"


def _both(condition: Value | None, added: Expression) -> Value:
    value = Value(f"({_expression(added)})")
    return value if condition is None else condition & value


def _expression(value: Expression) -> str:
    return value if isinstance(value, str) else _operand(value)


def _operand(value: Operand) -> str:
    return value.sql if isinstance(value, Value) else literal(value).sql


def _quote(name: str) -> str:
    return f"[{name.replace(']', ']]')}]"
