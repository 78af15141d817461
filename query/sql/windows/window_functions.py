"""
Binding of window functions -> :mod:`query.plan.windows`.

``TumblingWindow(hour, 1)``, ``HoppingWindow(Duration(hour, 1), Hop(minute, 15))``, their offsets and zones, ``SlidingWindow(minute, 5)``,
``SessionWindow(minute, 5, 60) OVER (PARTITION BY key)``, ``SnapshotWindow()`` or ``System.Timestamp()``, and ``Windows(...)`` of any of
them. The word Window may be omitted: ``Tumbling(hour, 1)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from ordering.ticks import DAY_US, format_duration
from query.plan.local_windows import LocalWindow
from query.plan.windows import SNAPSHOT, AnyWindow, Session, Sliding, Window, WindowSet
from query.sql.windows.window_lengths import EXAMPLES, WindowLengths
from tidegate.language.expressions.syntax.errors import Source, suggest
from tidegate.language.expressions.tree import Expr
from tidegate.language.time_zones.zone import Zone

# Longest window accepted unless a setting allows more, in microseconds.
WINDOW_US_MAX = 7 * DAY_US
# Most windows one event may belong to.
HOPS_MAX = 1_000_000

_KINDS = {
    **{f"{kind}window": kind for kind in EXAMPLES},
    **{kind: kind for kind in EXAMPLES if kind != "snapshot"},
    "windows": "windows",
    "window": "window",
}
_SEVERAL = "Windows(Window('short', TumblingWindow(minute, 1)), Window('long', TumblingWindow(hour, 1)))"
_SESSION = "SessionWindow(minute, 5, 60) OVER (PARTITION BY origin)"
NAMES = ("TumblingWindow", "HoppingWindow", "SlidingWindow", "SessionWindow", "SnapshotWindow")


def is_window(node: exp.Expr) -> bool:
    """Return whether *node* calls a window function, with or without OVER."""
    call = node.this if isinstance(node, exp.Window) else node
    return isinstance(call, exp.Anonymous) and str(call.name).lower() in _KINDS


@dataclass(frozen=True)
class WindowBinder:
    """Binds the window of one GROUP BY, given its bound grouping keys."""

    source: Source
    window_us_max: int
    bind_key: Callable[[exp.Expr], Expr]
    keys: tuple[Expr, ...]

    def bind(self, node: exp.Expr) -> AnyWindow | WindowSet:
        """Bind a call of a window function. Raises QueryError: an argument is wrong, or the window is too long or hops too often."""
        call, over = (node.this, node) if isinstance(node, exp.Window) else (node, None)
        kind = _KINDS[str(call.name).lower()]
        if over is not None and kind != "session":
            raise self.source.error("WINDOW", node, f"{call.name} takes no OVER", fix="leave OVER out; grouping keys keep groups apart")
        if kind == "window":
            raise self.source.error("WINDOW", node, "Window can stand in Windows only", example=_SEVERAL)
        if kind == "windows":
            return self._several(call)
        if kind == "session":
            return self._session(call, over)
        binding = WindowLengths(self.source, self.window_us_max)
        lengths, zone = binding.bind(call, kind), binding.zone(call, kind)
        if kind == "snapshot":
            return SNAPSHOT
        size = lengths["Duration"]
        if kind == "sliding":
            return Sliding(size)
        window = self._fixed_window(call, size, lengths.get("Hop", size), lengths.get("Offset", 0))
        return window if zone is None else self._local_window(call, window, zone)

    # Each kind

    def _fixed_window(self, call: exp.Expr, size: int, hop: int, offset: int) -> Window:
        if size // hop > HOPS_MAX:
            message = f"each event would belong to {size // hop} windows, more than {HOPS_MAX}"
            raise self.source.error("WINDOW", call, message, fix="hop less often")
        return Window(size, hop, offset % hop)

    def _local_window(self, call: exp.Expr, window: Window, zone: Zone) -> LocalWindow:
        if window.size_us % window.hop_us:
            message = f"a window of local time is made of whole hops, and {format_duration(window.hop_us)} do not divide its size"
            example = "HoppingWindow(Duration(day, 7), Hop(day, 1), TimeZone('Europe/Berlin'))"
            raise self.source.error("WINDOW", call, message, fix="take a hop that divides the size", example=example)
        return LocalWindow(window.size_us, window.hop_us, window.offset_us, zone=zone)

    def _session(self, call: exp.Expr, over: exp.Expr | None) -> Session:
        binding = WindowLengths(self.source, self.window_us_max)
        binding.zone(call, "session")
        lengths = binding.bind(call, "session")
        partition = self._partition(over) if over is not None else ()
        return Session(lengths["Timeout"], lengths["MaxDuration"], partition, tuple(str(self.keys[index]) for index in partition))

    def _partition(self, over: exp.Expr) -> tuple[int, ...]:
        nodes = over.args.get("partition_by") or []
        other = any(value for name, value in over.args.items() if name not in ("this", "over", "partition_by"))
        if other or not nodes:
            message = "OVER of a session takes PARTITION BY and nothing else"
            raise self.source.error("WINDOW", over, message, fix="name the keys that have sessions of their own", example=_SESSION)
        numbers = set()
        for node in nodes:
            key = self.bind_key(node)
            if key not in self.keys:
                message = f"sessions of each {key} need {key} among the grouping keys"
                example = f"GROUP BY {key}, SessionWindow(minute, 5, 60) OVER (PARTITION BY {key})"
                raise self.source.error("GROUP", node, message, fix=f"add {key} to GROUP BY", example=example)
            numbers.add(self.keys.index(key))
        return tuple(sorted(numbers))

    def _several(self, call: exp.Expr) -> WindowSet:
        nodes = call.expressions
        named = [isinstance(node, exp.Anonymous) and str(node.name).lower() == "window" for node in nodes]
        if not nodes or any(named) != all(named):
            message = "either all windows of Windows have an id or none" if nodes else "Windows takes one or more windows"
            raise self.source.error("WINDOW", call, message, fix="write it as shown", example=_SEVERAL)
        if not all(named):
            return WindowSet(tuple(map(self._inner, nodes)))
        ids: list[str] = []
        windows = []
        for node in nodes:
            ids.append(self._id(node, ids))
            windows.append(self._inner(node.expressions[1]))
        return WindowSet(tuple(windows), tuple(ids))

    def _id(self, node: exp.Expr, others: list[str]) -> str:
        args = node.expressions
        if len(args) != 2 or not isinstance(args[0], exp.Literal) or not args[0].is_string:
            raise self.source.error("WINDOW", node, "Window takes an id and a window", fix="write it as shown", example=_SEVERAL)
        name = str(args[0].this)
        if name.lower() in map(str.lower, others):
            raise self.source.error("WINDOW", node, f"two windows have the id {name}", fix="give each its own")
        return name

    def _inner(self, node: exp.Expr) -> AnyWindow:
        if not is_window(node):
            if is_timestamp(node):
                return SNAPSHOT
            spelled = str(node.name) if isinstance(node, exp.Anonymous) else node.sql(dialect="tsql")
            fix = suggest(spelled, NAMES, f"windows are {', '.join(NAMES)}")
            raise self.source.error("WINDOW", node, f"{spelled} is no window", fix=fix, example=_SEVERAL)
        bound = self.bind(node)
        if isinstance(bound, WindowSet):
            raise self.source.error("WINDOW", node, "Windows cannot stand inside Windows", fix="write all windows side by side")
        return bound


def is_timestamp(node: exp.Expr) -> bool:
    """Return whether *node* is ``System.Timestamp()``, which is a snapshot if used as a window."""
    parts = node.parts if isinstance(node, exp.Column) else [node.this, node.expression] if isinstance(node, exp.Dot) else []
    # With an argument it is the time of one side of a join.
    return [part.name.lower() for part in parts] == ["system", "timestamp"] and not parts[-1].expressions
