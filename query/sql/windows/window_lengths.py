"""
Binding of a window's durations: ``(minute, 60, 15)``, or named ``(Duration(hour, 1), Hop(minute, 15))`` -> microseconds; and of its zone,
``TimeZone('Europe/Berlin')``.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from ordering.ticks import format_duration
from tidegate.language.expressions.binding.local_times import bind_zone
from tidegate.language.expressions.functions.dates import DATE_PARTS
from tidegate.language.expressions.syntax.errors import Source, suggest
from tidegate.language.expressions.tree import UNITS_US as FIXED_UNITS_US
from tidegate.language.time_zones.zone import Zone

# No weeks, months or years: the durations of windows are fixed.
UNITS_US = {word: FIXED_UNITS_US[unit] for word, unit in DATE_PARTS.items() if unit in FIXED_UNITS_US}
EXAMPLES = {
    "tumbling": "TumblingWindow(hour, 1)",
    "hopping": "HoppingWindow(minute, 60, 15)",
    "sliding": "SlidingWindow(minute, 5)",
    "session": "SessionWindow(minute, 5, 60)",
    "snapshot": "SnapshotWindow()",
}
_PARTS = {
    "tumbling": ("Duration", "Offset"),
    "hopping": ("Duration", "Hop", "Offset"),
    "sliding": ("Duration",),
    "session": ("Timeout", "MaxDuration"),
    "snapshot": (),
}
_TAKES = {
    "tumbling": "a unit and a size",
    "hopping": "a unit, a size and a hop",
    "sliding": "a unit and a size",
    "session": "a unit, a timeout and a maximum duration",
    "snapshot": "nothing",
}
_WEEKS = (
    "write 7 days. They end on Thursdays at 0:00, as 1970-01-01 was one: an offset of 3 days ends them on Sundays, of 4 on Mondays",
    "TumblingWindow(Duration(day, 7), Offset(day, 4))",
)
_MONTHS = (
    "take days, and add them up by month where the results are stored: all windows have one length, and months and years differ",
    "GROUP BY YEAR(scheduled), MONTH(scheduled), TumblingWindow(day, 1)",
)
# What to write in place of units of the calendar.
_CALENDAR = {"week": _WEEKS, **dict.fromkeys(("month", "quarter", "year"), _MONTHS)}
# The kinds of windows that a clock may divide.
_LOCAL = ("tumbling", "hopping")
_LOCAL_EXAMPLE = "TumblingWindow(Duration(day, 1), TimeZone('Europe/Berlin'))"
_DIGITS_MAX = 18
_PART_NAMES = {"Timeout": "a timeout", "MaxDuration": "a maximum duration"}


@dataclass(frozen=True)
class WindowLengths:
    """Binds the durations of windows."""

    source: Source
    window_us_max: int

    def bind(self, call: exp.Expr, kind: str) -> dict[str, int]:
        """Return the durations of a window of this kind: microseconds by the name of the part."""
        args = _lengths_of(call)
        named = bool(args) and all(isinstance(arg, exp.Anonymous) for arg in args)
        lengths = self._named_lengths(call, kind) if named else self._positional_lengths(call, kind)
        for part, length in lengths.items():
            if part != "Offset":
                self._check(call, kind, part, length)
        return lengths

    def zone(self, call: exp.Expr, kind: str) -> Zone | None:
        """Return the zone that ``TimeZone('Europe/Berlin')`` gives a window; None without it."""
        zones = [arg for arg in call.expressions if _is_zone(arg)]
        if not zones:
            return None
        if kind not in _LOCAL:
            message, fix = f"{call.name} takes no TimeZone", "leave it out: the clock does not matter, the length is what it is"
            raise self.source.error("WINDOW", zones[0], message, fix=fix, example=_LOCAL_EXAMPLE)
        if len(zones) > 1 or len(zones[0].expressions) != 1:
            raise self.source.error(
                "WINDOW", zones[0], "TimeZone takes the name of one zone", fix="write it as shown", example=_LOCAL_EXAMPLE
            )
        return bind_zone(zones[0].expressions[0], self.source, _LOCAL_EXAMPLE)

    def _positional_lengths(self, call: exp.Expr, kind: str) -> dict[str, int]:
        args, parts = _lengths_of(call), _PARTS[kind]
        least, most = len(_required_lengths(kind)), len(parts)
        if not parts and not args:
            return {}
        if not parts or not least + 1 <= len(args) <= most + 1:
            raise self._wrong_arguments(call, kind)
        unit = self._unit(args[0])
        return {part: unit * self._number(arg) for part, arg in zip(parts, args[1:], strict=False)}

    def _named_lengths(self, call: exp.Expr, kind: str) -> dict[str, int]:
        spelled = {part.lower(): part for part in _PARTS[kind]}
        lengths: dict[str, int] = {}
        for arg in _lengths_of(call):
            part = str(arg.name).lower()
            if part not in spelled or spelled[part] in lengths or len(arg.expressions) != 2:
                takes = ", ".join(f"{part}(unit, n)" for part in _PARTS[kind])
                message = f"{call.name} takes {takes}, each once" if takes else f"{call.name} takes nothing"
                raise self.source.error("WINDOW", arg, message, fix=suggest(part, _PARTS[kind]), example=EXAMPLES[kind])
            lengths[spelled[part]] = self._unit(arg.expressions[0]) * self._number(arg.expressions[1])
        if not set(_required_lengths(kind)) <= set(lengths):
            raise self._wrong_arguments(call, kind)
        return lengths

    def _check(self, call: exp.Expr, kind: str, part: str, length: int) -> None:
        if length <= 0:
            message = f"{call.name} needs lengths above 0"
            raise self.source.error("WINDOW", call, message, fix="give positive numbers", example=EXAMPLES[kind])
        if length > self.window_us_max and part != "Hop":
            named = _PART_NAMES.get(part, "a window")
            message = f"{named} of {format_duration(length)} is longer than {format_duration(self.window_us_max)}"
            raise self.source.error("WINDOW", call, message, fix="shorten it, or raise query.window_max in the settings")

    def _wrong_arguments(self, call: exp.Expr, kind: str) -> Exception:
        return self.source.error("WINDOW", call, f"{call.name} takes {_TAKES[kind]}", fix="write it as shown", example=EXAMPLES[kind])

    def _unit(self, node: exp.Expr) -> int:
        spelled = node.name
        if DATE_PARTS.get(spelled.lower()) in _CALENDAR:
            unit, (fix, example) = spelled.lower(), _CALENDAR[DATE_PARTS[spelled.lower()]]
            raise self.source.error("WINDOW", node, f"a window's length has no unit {unit}", fix=fix, example=example)
        if spelled.lower() not in UNITS_US:
            fix = suggest(spelled, UNITS_US, "units are day, hour, minute, second, millisecond, microsecond")
            raise self.source.error("WINDOW", node, f"there is no unit {spelled or node.sql(dialect='tsql')}", fix=fix)
        return UNITS_US[spelled.lower()]

    def _number(self, node: exp.Expr) -> int:
        sign, value = (-1, node.this) if isinstance(node, exp.Neg) else (1, node)
        if not isinstance(value, exp.Literal) or value.is_string or not str(value.this).isdigit():
            raise self.source.error("WINDOW", node, "a window's lengths are whole numbers", fix="write a number", example="hour, 1")
        if len(str(value.this)) > _DIGITS_MAX:
            message = f"a window's length has more than {_DIGITS_MAX} digits"
            raise self.source.error("WINDOW", node, message, fix="write a smaller number", example="hour, 1")
        return sign * int(str(value.this))


def _is_zone(arg: exp.Expr) -> bool:
    return isinstance(arg, exp.Anonymous) and str(arg.name).lower() == "timezone"


def _lengths_of(call: exp.Expr) -> list[exp.Expr]:
    """Return the arguments of a window that are lengths."""
    return [arg for arg in call.expressions if not _is_zone(arg)]


def _required_lengths(kind: str) -> tuple[str, ...]:
    return tuple(part for part in _PARTS[kind] if part != "Offset")
