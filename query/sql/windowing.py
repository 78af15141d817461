"""
Binding of window functions: ``TumblingWindow(hour, 1)``, ``HoppingWindow(Duration(hour, 1), Hop(minute, 15))`` and
their offsets -> :class:`query.operators.windows.Window`.
"""

from __future__ import annotations

from sqlglot import exp

from ordering.ticks import DAY_US, HOUR_US, MILLISECOND_US, MINUTE_US, SECOND_US, format_duration
from query.operators.windows import Window
from tidegate.runtime.scalars.errors import Source, suggest
from tidegate.runtime.scalars.parse import offset_of

WINDOW_US_MAX = 7 * DAY_US
"""Longest window accepted unless a setting allows more, in microseconds."""
HOPS_MAX = 1_000_000
"""Most windows one event may belong to."""

UNITS_US = {
    **dict.fromkeys(("day", "dd", "d"), DAY_US),
    **dict.fromkeys(("hour", "hh"), HOUR_US),
    **dict.fromkeys(("minute", "mi", "n"), MINUTE_US),
    **dict.fromkeys(("second", "ss", "s"), SECOND_US),
    **dict.fromkeys(("millisecond", "ms"), MILLISECOND_US),
    **dict.fromkeys(("microsecond", "mcs"), 1),
}
_EXAMPLES = {"tumblingwindow": "TumblingWindow(hour, 1)", "hoppingwindow": "HoppingWindow(minute, 60, 15)"}
_PARTS = {"tumblingwindow": ("duration", "offset"), "hoppingwindow": ("duration", "hop", "offset")}


def bind_window(node: exp.Expr, source: Source, window_us_max: int = WINDOW_US_MAX) -> Window:
    """
    Bind one window function.

    Args:
        node: The call.
        source: The script, for error places.
        window_us_max: Longest window accepted, in microseconds.

    Raises:
        QueryError: An argument is wrong, or the window is too long or hops too often.
    """
    name = str(node.name).lower()
    lengths = _lengths(node, name, source)
    size = lengths["duration"]
    hop = lengths.get("hop", size)
    spelled, at = str(node.name), offset_of(node)
    if size <= 0 or hop <= 0:
        raise source.error(f"{spelled} needs lengths above 0", code="WINDOW", at=at, fix="give positive numbers", example=_EXAMPLES[name])
    if size > window_us_max:
        raise source.error(
            f"a window of {format_duration(size)} is longer than {format_duration(window_us_max)}",
            code="WINDOW",
            at=at,
            fix="shorten it, or raise query.window_max in the settings",
        )
    if size // hop > HOPS_MAX:
        raise source.error(
            f"each event would belong to {size // hop} windows, more than {HOPS_MAX}", code="WINDOW", at=at, fix="hop less often"
        )
    return Window(size, hop, lengths.get("offset", 0) % hop)


def _lengths(node: exp.Expr, name: str, source: Source) -> dict[str, int]:
    """Return the window's lengths in microseconds by the name of the part."""
    args = node.expressions
    if args and all(isinstance(arg, exp.Anonymous) for arg in args):
        return _named_lengths(node, name, source)
    parts = _PARTS[name]
    if not len(parts) <= len(args) <= len(parts) + 1:
        raise _wrong_arguments(node, name, source)
    unit = _unit(args[0], source)
    return {part: unit * _number(arg, source) for part, arg in zip(parts, args[1:], strict=False)}


def _named_lengths(node: exp.Expr, name: str, source: Source) -> dict[str, int]:
    lengths: dict[str, int] = {}
    for arg in node.expressions:
        part = str(arg.name).lower()
        if part not in _PARTS[name] or part in lengths or len(arg.expressions) != 2:
            raise source.error(
                f"{node.name} takes {', '.join(p.capitalize() + '(unit, n)' for p in _PARTS[name])}, each once",
                code="WINDOW",
                at=offset_of(arg),
                fix=suggest(part, [p.capitalize() for p in _PARTS[name]]),
                example=_EXAMPLES[name],
            )
        lengths[part] = _unit(arg.expressions[0], source) * _number(arg.expressions[1], source)
    if not set(_PARTS[name]) - {"offset"} <= set(lengths):
        raise _wrong_arguments(node, name, source)
    return lengths


def _wrong_arguments(node: exp.Expr, name: str, source: Source) -> Exception:
    takes = "a unit, a size and a hop" if name == "hoppingwindow" else "a unit and a size"
    return source.error(f"{node.name} takes {takes}", code="WINDOW", at=offset_of(node), fix="write it as shown", example=_EXAMPLES[name])


def _unit(node: exp.Expr, source: Source) -> int:
    spelled = node.name
    if spelled.lower() not in UNITS_US:
        fix = suggest(spelled, UNITS_US, "units are day, hour, minute, second, millisecond, microsecond")
        raise source.error(f"there is no unit {spelled or node.sql(dialect='tsql')}", code="WINDOW", at=offset_of(node), fix=fix)
    return UNITS_US[spelled.lower()]


def _number(node: exp.Expr, source: Source) -> int:
    sign, value = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
    if not isinstance(value, exp.Literal) or value.is_string or not str(value.this).isdigit() or len(str(value.this)) > 18:
        raise source.error(
            "a window's lengths are whole numbers", code="WINDOW", at=offset_of(node), fix="write a number", example="hour, 1"
        )
    return sign * int(str(value.this))
