"""Binding of GROUP BY: its keys, its window, and the expressions over groups in SELECT and HAVING."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from query.plan.windows import SNAPSHOT, AnyWindow, WindowSet
from query.sql.windows.window_functions import NAMES, WINDOW_US_MAX, WindowBinder, is_timestamp, is_window
from tidegate.language.expressions.binding.local_times import without_zone
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder, is_window_id
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.syntax.counterparts import COUNTERPARTS
from tidegate.language.expressions.syntax.errors import Source, similarity, suggest
from tidegate.language.expressions.tree import (
    Aggregate,
    Cast,
    Expr,
    Field,
    Key,
    Leaf,
    Property,
    Slot,
    SystemTimestamp,
    Total,
    WindowEnd,
    WindowId,
    replace_parts,
)

WINDOW_EXAMPLE = "GROUP BY origin, TumblingWindow(hour, 1)"
# Least similarity of a function to a window that is taken for a misspelled one.
_SIMILARITY_MIN = 0.85


@dataclass(frozen=True)
class GroupByBinder:
    """Binds the keys and the window of one GROUP BY."""

    source: Source
    window_us_max: int = WINDOW_US_MAX

    def bind(self, group: exp.Expr, binder: ScalarBinder) -> tuple[AnyWindow | WindowSet, tuple[Expr, ...]]:
        """Return the window and the distinct keys. Raises QueryError: there is no window, or a key is invalid."""
        for name, value in group.args.items():
            if value and name != "expressions":
                raise self.source.not_yet(group, f"{name.replace('_', ' ').upper()} is")
        nodes = group.expressions
        windows = [node for node in nodes if is_window(node)]
        # System.Timestamp() is a snapshot window if there is no other window, and a key otherwise.
        instants = [node for node in nodes if is_timestamp(node)] if not windows else []
        others = [node for node in nodes if node not in (*windows, *instants) and not is_window_id(node)]
        keys = tuple(dict.fromkeys(self._key(node, binder) for node in others))
        if not windows and not instants:
            message = "GROUP BY needs a window: results are final, and a group without one is never complete"
            fix = "add one; the running result of a day is that of TumblingWindow(day, 1), at its end"
            raise self.source.error("GROUP", group, message, fix=fix, example=WINDOW_EXAMPLE)
        if len(windows) > 1:
            fix = "put them into Windows(...), or run one query per window"
            raise self.source.error("GROUP", windows[1], "GROUP BY takes one window", fix=fix)
        if instants:
            return SNAPSHOT, keys
        return WindowBinder(self.source, self.window_us_max, lambda node: self._key(node, binder), keys).bind(windows[0]), keys

    def _key(self, node: exp.Expr, binder: ScalarBinder) -> Expr:
        if isinstance(node, exp.Literal):
            message = "GROUP BY takes expressions, not positions"
            raise self.source.error("GROUP", node, message, fix="name the field", example=WINDOW_EXAMPLE)
        is_foreign = isinstance(node, exp.Anonymous) and str(node.name).lower() in COUNTERPARTS
        if isinstance(node, exp.Anonymous) and not is_foreign and _resembles_window(name := str(node.name)):
            raise self.source.error("WINDOW", node, f"there is no window {name}", fix=suggest(name, NAMES), example=WINDOW_EXAMPLE)
        # Instants are one key whatever their zone; SELECT says how the key is shown.
        return without_zone(binder.bind(node, event_clause="GROUP BY"))


def _resembles_window(name: str) -> bool:
    return name.lower().endswith("window") or any(similarity(name, known) > _SIMILARITY_MIN for known in NAMES)


@dataclass(frozen=True)
class GroupedExpressions:
    """Turns expressions over rows into expressions over groups."""

    source: Source
    keys: tuple[Expr, ...]
    totals: tuple[Aggregate, ...]

    def over_groups(self, expr: Expr, alias: str = "") -> Expr:
        """Return *expr* over keys, aggregates, the window's end and id; *alias* is its name in SELECT, for the message."""
        return replace_parts(expr, lambda part: self._of_group(part, alias))

    def _of_group(self, expr: Expr, alias: str) -> Expr | None:
        if isinstance(expr, SystemTimestamp):
            return WindowEnd(offset=expr.offset)
        if isinstance(expr, WindowId):
            return expr
        if expr in self.keys:
            return Key(self.keys.index(expr), str(expr), static_kind(expr), offset=expr.offset)
        if isinstance(expr, Aggregate):
            return Total(self.totals.index(expr), str(expr), static_kind(expr), offset=expr.offset)
        is_member = isinstance(expr, Property) and isinstance(expr.arg, Leaf) and expr.arg not in self.keys
        if is_member or isinstance(expr, Leaf) or (isinstance(expr, Cast) and expr.declared):
            raise self._not_grouped(expr, alias)
        return None

    def _not_grouped(self, expr: Expr, alias: str) -> Exception:
        message = f"{expr} is neither grouped nor aggregated"
        if alias and str(expr).lower() != alias.lower() and alias.lower() in [str(key).lower() for key in self.keys]:
            fix = f"GROUP BY {alias} takes the input's {alias}, not the column that SELECT names so: repeat the expression there"
            return self.source.error("GROUP", expr.offset, message, fix=fix)
        if isinstance(expr, Field) and (counterpart := COUNTERPARTS.get(str(expr).lower())):
            return self.source.error("GROUP", expr.offset, message, fix=counterpart[0], example=counterpart[1])
        grouped = [str(key) for key in self.keys if isinstance(key, (Field, Cast, Slot))]
        fix = suggest(str(expr), grouped, f"add {expr} to GROUP BY, or aggregate it")
        return self.source.error("GROUP", expr.offset, message, fix=fix, example=f"MAX({expr})")
