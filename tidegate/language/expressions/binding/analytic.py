"""
Binding of analytic functions: functions of a row and the rows before it.

In ``LAG(x, 2) OVER (PARTITION BY k LIMIT DURATION(hour, 1) WHEN c)`` the rows before are those with the same k that meet c and are at most
an hour older; the value is x of the last but one of them. LAST counts the row itself too. ``SUM(x) OVER (...)``, like every other
aggregate, covers all rows before and the row itself. ``ISFIRST(minute, 15) OVER (...)`` is 1 in the first row of each interval that meets
c, else 0.

Law: an analytic function is computed from the rows of FROM, before WHERE and GROUP BY. So neither can change its value, and both may
contain it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from tidegate.language.expressions.binding.aggregates import ORDERED_AGGREGATES
from tidegate.language.expressions.evaluation.static_kinds import static_kind
from tidegate.language.expressions.functions.dates import DATE_PARTS
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.dialect import LIMIT, WHEN
from tidegate.language.expressions.syntax.errors import Source, offset_of, suggest
from tidegate.language.expressions.tree import UNITS_US, Aggregate, Analytic, Expr

_ARGUMENTS = {"lag": (1, 3), "last": (1, 2), "isfirst": (2, 2)}
_CLAUSES = frozenset({"this", "over", "partition_by", LIMIT, WHEN})
_EXAMPLES = {
    "lag": "LAG(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))",
    "last": "LAST(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1) WHEN delay IS NOT NULL)",
    "isfirst": "ISFIRST(minute, 15) OVER (PARTITION BY origin)",
    "anomalydetection_changepoint": "AnomalyDetection_ChangePoint(delay, 80, 120) OVER (LIMIT DURATION(minute, 20))",
    "anomalydetection_spikeanddip": "AnomalyDetection_SpikeAndDip(delay, 95, 120, 'spikesanddips') OVER (LIMIT DURATION(minute, 2))",
    "collecttop": "CollectTop(3) OVER (PARTITION BY origin ORDER BY delay DESC LIMIT DURATION(hour, 1))",
    "topone": "TopOne() OVER (PARTITION BY origin ORDER BY delay DESC LIMIT DURATION(hour, 1))",
    "percentile_cont": "PERCENTILE_CONT(0.5) OVER (PARTITION BY origin ORDER BY delay LIMIT DURATION(hour, 1))",
    "percentile_disc": "PERCENTILE_DISC(0.5) OVER (PARTITION BY origin ORDER BY delay LIMIT DURATION(hour, 1))",
}


@dataclass(frozen=True)
class AnalyticBinder:
    """Binds one analytic function; *bind_condition* takes the name of the clause, *whole_row* an offset in the script."""

    source: Source
    bind: Callable[[exp.Expr], Expr]
    bind_condition: Callable[[exp.Expr, str], Expr]
    bind_aggregate: Callable[[str, exp.Expr, exp.Expr | None], Aggregate]
    whole_row: Callable[[int], Expr]

    def bind_call(self, name: str, call: exp.Expr, over: exp.Expr | None) -> Analytic:
        clauses = over.args if over is not None else {}
        self._refuse_other_clauses(name, clauses, call)
        self._refuse_distinct_count(name, call)
        total = None
        if name in _ARGUMENTS:
            self._check_count(name, call)
        else:
            total = self._aggregate(name, call, over)
        partition = tuple(self._argument(name, node) for node in clauses.get("partition_by") or ())
        when = self.bind_condition(clauses[WHEN], "WHEN") if clauses.get(WHEN) else None
        if when is not None:
            self._refuse_inside(name, when)
        offset = offset_of(call)
        if name == "isfirst":
            if clauses.get(LIMIT):
                fix = "leave it out: its arguments say how long its intervals are"
                raise self._error(name, "ISFIRST takes no LIMIT DURATION", call, fix=fix)
            return Analytic(name, None, partition, self._duration_us(call.expressions, call, name), when, offset=offset)
        limit_us = self._limit_us(name, clauses.get(LIMIT), call)
        if total is not None:
            return Analytic(name, None, partition, limit_us, when, aggregate=total, offset=offset)
        arg = self._argument(name, call.expressions[0])
        rows_back = self._rows_back(call) if name == "lag" else 0
        return Analytic(name, arg, partition, limit_us, when, rows_back, self._default(name, call, arg), offset=offset)

    def _refuse_other_clauses(self, name: str, clauses: dict[str, object], call: exp.Expr) -> None:
        other_clauses = (clause for clause, value in clauses.items() if value and clause not in _CLAUSES)
        clause = next((clause for clause in other_clauses if clause != "order" or name not in ORDERED_AGGREGATES), None)
        if clause == "order":
            fix = "leave it out: rows stand in the order of time"
            raise self._error(name, f"{name.upper()} takes no ORDER BY in OVER", call, code="FUNCTION", fix=fix)
        if clause:
            raise self.source.not_yet(call, f"{clause.replace('_', ' ').upper()} in OVER is")

    def _refuse_distinct_count(self, name: str, call: exp.Expr) -> None:
        if name == "count" and call.expressions and isinstance(call.expressions[0], exp.Distinct):
            message = "COUNT(DISTINCT ...) takes no OVER, as in Stream Analytics"
            fix = "count them in a sliding window, which reaches back as far; COLLECT with OVER gives the values themselves"
            example = "SELECT origin, COUNT(DISTINCT delay) AS n ... GROUP BY origin, SlidingWindow(hour, 1)"
            raise self.source.error("FUNCTION", call, message, fix=fix, example=example)

    def _check_count(self, name: str, call: exp.Expr) -> None:
        least, most = _ARGUMENTS[name]
        count = len(call.expressions)
        if not least <= count <= most:
            takes = str(least) if least == most else f"{least} to {most}"
            message = f"{name.upper()} takes {takes} argument{'s' if most > 1 else ''}, not {count}"
            raise self._error(name, message, call, code="FUNCTION", fix="write it as shown")

    # Arguments

    def _argument(self, name: str, node: exp.Expr) -> Expr:
        part = self.whole_row(offset_of(node)) if isinstance(node, exp.Star) else self.bind(node)
        self._refuse_inside(name, part)
        return part

    def _refuse_inside(self, name: str, part: Expr) -> None:
        inner_call = next((inner for inner in part.walk() if isinstance(inner, (Aggregate, Analytic))), None)
        if inner_call is not None:
            message = f"{inner_call} cannot stand inside {name.upper()} OVER"
            raise self.source.error("GROUP", inner_call.offset, message, fix="compute it in a step", example="WITH step AS (SELECT ...)")

    def _aggregate(self, name: str, call: exp.Expr, over: exp.Expr | None) -> Aggregate:
        total = self.bind_aggregate(name, call, over)
        for part in total.parts:
            self._refuse_inside(name, part)
        return total

    def _rows_back(self, call: exp.Expr) -> int:
        if len(call.expressions) < 2:
            return 1
        offset = whole_number(call.expressions[1])
        if offset is None or offset < 1:
            fix = "LAST gives the row itself" if offset == 0 else "write a number"
            message, example = "LAG goes back a whole number of rows, 1 or more", "LAG(delay, 2) OVER (LIMIT DURATION(hour, 1))"
            raise self.source.error("FUNCTION", call.expressions[1], message, fix=fix, example=example)
        return offset

    def _default(self, name: str, call: exp.Expr, arg: Expr) -> Expr | None:
        place = 2 if name == "lag" else 1
        if len(call.expressions) <= place:
            return None
        default = self._argument(name, call.expressions[place])
        kinds = static_kind(arg), static_kind(default)
        if None not in kinds and Kind.NULL not in kinds and kinds[0] is not kinds[1]:
            expected_type, given_type = (kind.asa_name for kind in kinds if kind is not None)
            message = f"the default of {name.upper()} is {given_type}, but {arg} is {expected_type}"
            raise self.source.error("TYPE", call.expressions[place], message, fix=f"write a default of type {expected_type}")
        return default

    # Durations

    def _limit_us(self, name: str, limit: exp.Expr | None, call: exp.Expr) -> int:
        if limit is None:
            raise self._error(name, f"{name.upper()} must say how far back it looks", call, fix="write OVER ( ... LIMIT DURATION(unit, n))")
        if not isinstance(limit, exp.Anonymous) or str(limit.name).lower() != "duration":
            raise self._error(name, "LIMIT takes DURATION(unit, n)", limit, fix="write it as shown")
        return self._duration_us(limit.expressions, limit, name)

    def _duration_us(self, args: list[exp.Expr], node: exp.Expr, name: str) -> int:
        if len(args) != 2:
            raise self._error(name, "DURATION takes a unit and a number", node, fix="write it as shown")
        spelled = args[0].name
        unit_us = UNITS_US.get(DATE_PARTS.get(spelled.lower(), ""))
        if unit_us is None:
            fix = suggest(spelled, UNITS_US, f"units are {', '.join(UNITS_US)}")
            raise self.source.error("WINDOW", node, f"there is no unit {spelled or args[0].sql(dialect='tsql')}", fix=fix)
        number = whole_number(args[1])
        if number is None or number < 1:
            raise self._error(name, "a duration is a whole number of units, 1 or more", node, fix="write a number")
        return unit_us * number

    def _error(self, name: str, message: str, node: exp.Expr, *, code: str = "WINDOW", fix: str = "") -> Exception:
        example = _EXAMPLES.get(name, f"{name.upper()}(delay) OVER (PARTITION BY origin LIMIT DURATION(hour, 1))")
        return self.source.error(code, node, message, fix=fix, example=example)


def whole_number(node: exp.Expr) -> int | None:
    """Return the value of an integer literal of at most 18 digits, else None."""
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    return int(text) if text.isdigit() and len(text) <= 18 else None
