"""
Binding of JOIN ... ON: the condition for rows to match.

The condition of ON is split into the distance in time of two rows (DATEDIFF of two inputs, compared with constants), the keys that must be
equal on both sides, and all other conditions. Law: a pair matches exactly if the condition as written is true for it. Conditions on the new
input alone are checked before the join, so that rows without any possible match are not retained.

In ON the bare name of an input means the System.Timestamp of its row, but only in DATEDIFF and on a side of <, <=, > or >=. So
``a < b.ends AND b < a.ends`` says that two lifetimes overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from ordering.ticks import format_duration
from query.plan.join_bounds import Bound, Bounds
from query.plan.nodes import Column, Filter, Join, Project, ReferenceJoin, Rows, Scan, walk
from query.plan.origins import origins, renumber_columns
from query.sql.column_layout import Layout, over_own_rows
from query.sql.misused_names import names_meant_as_texts
from query.sql.scopes import Relation, RelationLeaf, ScopeNames, joins_and_applies, slot
from tidegate.language.expressions.binding.scalar_binder import ScalarBinder
from tidegate.language.expressions.functions.dates import fixed_unit
from tidegate.language.expressions.kinds import Kind
from tidegate.language.expressions.syntax.errors import Source, offset_of, suggest
from tidegate.language.expressions.tree import (
    Call,
    CaseFolded,
    Cast,
    DatePart,
    Expr,
    Field,
    Literal,
    Required,
    Requirement,
    SystemTimestamp,
    keys_of,
)

_EXAMPLE = "FROM a JOIN b ON DATEDIFF(minute, a, b) BETWEEN 0 AND 10 AND a.k = b.k"
_INSTEAD = {
    "RIGHT": "exchange the two sides and write LEFT JOIN",
    "FULL": "write a LEFT JOIN, and add by UNION the rows of a LEFT JOIN from the other side WHERE the first IS NULL",
    "OUTER": "write LEFT JOIN",
    "NATURAL": "write JOIN ... ON and name what must be equal",
    "SEMI": "write JOIN: each match gives a row; TopOne() in a window takes one of them",
    "ANTI": "write LEFT JOIN, and WHERE a field of the right side IS NULL",
    "ASOF": "write JOIN ... ON with the time between the two; of one input, LAST() finds the row before",
    "USING": "write ON and name what must be equal on both sides",
}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def joins_of(select: exp.Select, source: Source) -> list[exp.Join]:
    """Return the JOINs of a SELECT in the order of the script, without APPLYs. Raises QueryError: one is of an unknown kind."""
    joins = [join for join in joins_and_applies(select) if not isinstance(join.this, exp.Lateral)]
    for join in joins:
        clauses = join.args
        words = [clauses.get("method"), clauses.get("side"), clauses.get("kind"), "USING" if clauses.get("using") else None]
        kind = next((word for word in words if word in _INSTEAD and not (word == "OUTER" and clauses.get("side"))), "")
        if kind:
            name = "JOIN with USING" if kind == "USING" else f"{kind} JOIN"
            raise source.error("JOIN", join, f"there is no {name}", fix=_INSTEAD[kind], example=_EXAMPLE)
        if isinstance(join.this, exp.Table) and join.this.args.get("joins"):
            raise source.error("JOIN", join, "a JOIN stands inside another", fix="write ON before the next JOIN")
    return joins


def name_sides(relations: Sequence[Relation], joins: Sequence[exp.Join], source: Source, offset: int) -> list[Relation]:
    """Return the relations of FROM and JOIN, each with one unique name; *offset* is the place of FROM."""
    if _is_reference(relations[0]):
        name = relations[0].schema.name if relations[0].schema else ""
        message = f"{name} is reference data, and FROM needs a stream"
        fix = "name the stream in FROM and the reference data in JOIN, whose ON takes conditions on it"
        raise source.error("JOIN", offset, message, fix=fix, example=f"FROM a JOIN {name} r ON a.k = r.k")
    if not joins:
        return list(relations)
    named = [replace(relation, names=frozenset({relation.name.lower()})) for relation in relations]
    for number, (join, relation) in enumerate(zip(joins, named[1:], strict=True), start=1):
        if relation.names in [other.names for other in named[:number]]:
            message, fix = f"two sides of a join are called {relation.name}", "give each a name of its own"
            raise source.error("NAME", join, message, fix=fix, example=f"FROM {relation.name} x JOIN {relation.name} y")
    return named


@dataclass(frozen=True)
class OnCondition:
    """The condition of one ON, for the relation that its JOIN adds; *is_outer*: earlier rows without a match are kept."""

    is_outer: bool
    # The allowed distance in time, None for reference data; and the relation from whose row it counts, 0 for reference data.
    bounds: Bounds | None
    time_of: int
    # Pairs that must be equal: over the earlier relations, and over the new one.
    keys: tuple[tuple[Expr, Expr], ...]
    other_conditions: tuple[Expr, ...]
    # Conditions on one relation alone, by its number; they are checked before the join.
    conditions_before: Mapping[int, tuple[Expr, ...]]

    @property
    def exprs(self) -> list[Expr]:
        return [*(part for pair in self.keys for part in pair), *self.other_conditions]


@dataclass(frozen=True)
class Joins:
    """The joins of one SELECT: the filtered relations, and the ON of each but the first."""

    relations: tuple[Relation, ...]
    on_conditions: tuple[OnCondition, ...]

    @property
    def exprs(self) -> list[Expr]:
        times = [_time_of(on.time_of) for number, on in enumerate(self.on_conditions) if number and on.bounds is not None]
        return [*times, *(expr for on in self.on_conditions for expr in on.exprs)]

    def rows(self, layout: Layout) -> Rows:
        """Return the node of the joined rows: the first two relations are joined, then the third, and so on."""
        all_columns = tuple(Column(column.title, column) for column in sorted(layout.places.values(), key=lambda column: column.index))
        joined, *right_sides = _sides(layout)
        width = len(joined.columns)
        spreads = [0]
        for number, (on, right) in enumerate(zip(self.on_conditions, right_sides, strict=True)):
            keys = tuple((layout.over_columns(left), renumber_columns(layout.over_columns(right), width)) for left, right in on.keys)
            width += len(right.columns)
            residual = _all_of([layout.over_columns(part) for part in on.other_conditions])
            if on.bounds is None:
                assert isinstance(right, Project)
                joined = ReferenceJoin(joined, right, on.is_outer, keys, residual, all_columns[:width])
                spreads.append(0)
                continue
            spread = spreads[on.time_of]
            time = layout.places[_time_of(on.time_of)] if number else None
            joined = Join(joined, right, on.is_outer, on.bounds, keys, residual, all_columns[:width], time, spread)
            # A joined row gets the time of its latest part; how much older each part may be decides how long later joins wait.
            spreads = [older_us + max(0, on.bounds.after_us) for older_us in spreads] + [spread + max(0, on.bounds.before_us)]
        return joined


@dataclass(frozen=True)
class OnBinder:
    """Binds the conditions of JOIN ... ON."""

    source: Source
    window_us_max: int

    def bind(self, joins: Sequence[exp.Join], relations: Sequence[Relation]) -> Joins:
        """Bind the conditions of all joins of a SELECT; there is one relation more than *joins*."""
        self._check_over(joins, relations)
        ons = []
        for number, join in enumerate(joins, start=1):
            may_filter = [number, *([0] if number == 1 and join.args.get("side") != "LEFT" else [])]
            ons.append(self._bind_on(join, relations[: number + 1], may_filter))
            self._check_over_key(join, relations[: number + 1], ons[-1])
        return Joins(tuple(_filter(relation, _conditions_before(ons, index)) for index, relation in enumerate(relations)), tuple(ons))

    def _bind_on(self, join: exp.Join, relations: Sequence[Relation], may_filter: Sequence[int]) -> OnCondition:
        new, join_offset = len(relations) - 1, offset_of(join)
        condition = join.args.get("on")
        parts = self._conditions(condition, relations) if condition is not None else []
        merged, time_of, rest = None, 0, parts
        if not _is_reference(relations[new]):
            missing = "ON does not limit" if condition is not None else "no ON limits"
            merged, time_of, used = self._bounds(parts, relations, missing, join_offset)
            rest = _without(parts, used)
        keys = [(part, key) for part in rest if (key := _key(part, new)) is not None]
        rest = _without(rest, [part for part, _ in keys])
        before = {index: tuple(part for part in rest if _relations_of(part) == {index}) for index in may_filter}
        residual = tuple(_without(rest, [part for conditions in before.values() for part in conditions]))
        return OnCondition(join.args.get("side") == "LEFT", merged, time_of, tuple(key for _, key in keys), residual, before)

    def _conditions(self, node: exp.Expr, relations: Sequence[Relation]) -> list[Expr]:
        times = _times(node, relations)
        texts = names_meant_as_texts([node], relations, self.source) - frozenset(times)
        of_sides = {offset: index for offset, index in times.items() if index is not None}
        names = _OnNames(self.source, relations, texts, of_sides, frozenset(times))
        bound = ScalarBinder(self.source, names).bind_condition(node, "ON")
        for offset, index in names.times.items():
            if _is_reference(relations[index]):
                message, fix = f"{relations[index].name} is reference data and has no time", "leave its time out, or compare fields of it"
                raise self.source.error("JOIN", offset, message, fix=fix, example=f"ON a.k = {relations[index].name}.k")
        loose = next((part for part in bound.walk() if isinstance(part, SystemTimestamp)), None)
        if loose is not None:
            message, fix = "in ON there are several rows, each with a System.Timestamp() of its own", "name an input in DATEDIFF"
            raise self.source.error("JOIN", loose.offset, message, fix=fix, example=_between(relations[0], relations[-1]))
        return list(_conjuncts(bound))

    # Time

    def _bounds(self, parts: Sequence[Expr], relations: Sequence[Relation], missing: str, offset: int) -> tuple[Bounds, int, list[Expr]]:
        """
        Return the bounds of time in a condition of ON, the relation from whose time they count, and the parts that say so.

        Raises:
            QueryError: They do not limit the time in both directions; the message begins with *missing*.
        """
        bounds: dict[int, list[tuple[Expr, Bound]]] = {}
        for part in parts:
            if (bound_to := self._read_bound(part, len(relations) - 1)) is not None:
                bounds.setdefault(bound_to[0], []).append((part, bound_to[1]))
        time_of = next((other for other, limits in bounds.items() if _limits_both_directions([bound for _, bound in limits])), None)
        if time_of is None:
            raise self._without_bounds(missing, bounds, relations, offset, parts)
        used = bounds[time_of]
        return self._merge_bounds([bound for _, bound in used], used[0][0].offset), time_of, [part for part, _ in used]

    def _read_bound(self, part: Expr, new: int) -> tuple[int, Bound] | None:
        """Return the relation whose time *part* compares with the new one's, and the bound; None if *part* compares no times."""
        ends = _ends(part)
        if ends is None:
            return None
        datediff, low, high = ends
        unit, start, end = datediff.args
        assert isinstance(unit, DatePart)
        sides = [side.index if isinstance(side, RelationLeaf) and isinstance(side.leaf, SystemTimestamp) else None for side in (start, end)]
        if new not in sides or None in sides or sides[0] == sides[1]:
            return None
        length = fixed_unit(unit.unit)
        if length is None:
            message = f"a {unit.unit} has no fixed length"
            raise self.source.error("JOIN", unit.offset, message, fix="write it in days", example="BETWEEN 0 AND 7")
        bound = Bound(unit.unit, *length, low, high)
        return (sides[0] or 0, bound) if sides[1] == new else (sides[1] or 0, bound.swap_sides())

    def _merge_bounds(self, bounds: Sequence[Bound], offset: int) -> Bounds:
        merged: dict[str, Bound] = {}
        for bound in bounds:
            previous = merged.get(bound.unit, bound)
            low = max((end for end in (bound.low, previous.low) if end is not None), default=None)
            high = min((end for end in (bound.high, previous.high) if end is not None), default=None)
            merged[bound.unit] = replace(bound, low=low, high=high)
            if low is not None and high is not None and low > high:
                message = f"no DATEDIFF is at least {low} and at most {high}"
                raise self.source.error("JOIN", offset, message, fix="write the lower end first", example=f"BETWEEN {high} AND {low}")
        merged_bounds = Bounds(tuple(merged.values()))
        latest = min(bound.high * bound.unit_us for bound in merged_bounds.parts if bound.high is not None)
        earliest = min(-bound.low * bound.unit_us for bound in merged_bounds.parts if bound.low is not None)
        if (apart_us := max(latest, earliest)) > self.window_us_max:
            message = f"rows that match may be {format_duration(apart_us)} apart, more than {format_duration(self.window_us_max)}"
            raise self.source.error("JOIN", offset, message, fix="shorten it, or raise query.window_max in the settings")
        return merged_bounds

    def _without_bounds(
        self, message: str, bounds: Mapping[int, Sequence[object]], relations: Sequence[Relation], offset: int, parts: Sequence[Expr]
    ) -> Exception:
        first, new = relations[next(iter(bounds), 0)], relations[-1]
        message += f" the time between {first.name} and {new.name}" + (" in both directions" if bounds else "")
        longest = f"at most {format_duration(self.window_us_max)} (query.window_max)"
        ranged = [field for part in parts for field in _ranged_fields(part)]
        fix = (
            f"{ranged[-1]} differs from row to row: add the longest time that it allows, {longest}, and keep the condition"
            if ranged
            else f"say in whole numbers how far apart in time rows may be that match, {longest}"
        )
        if not ranged and not bounds and any(_ends(part) is not None for part in parts):
            fix = f"name {first.name} and {new.name} themselves in DATEDIFF, each once"
        elif not bounds and new.schema is not None and isinstance(new.rows, Scan) and not (new.rows.timestamp_by or new.schema.is_result):
            table = new.schema.name
            of_table = f"if {table} is a table without times, name it as one: --reference {table}=FILE, or [references.{table}]"
            if any(isinstance(other.rows, Scan) and other.rows.timestamp_by for other in relations[:-1]):
                # Only the other side says what its time is, so this one is probably a table.
                return self.source.error("JOIN", offset, f"{table} is read as a stream, and {message}", fix=f"{of_table}; else {fix}")
            fix += f"; {of_table}"
        return self.source.error("JOIN", offset, message, fix=fix, example=f"JOIN {new.name} ON {_between(first, new)}")

    # OVER

    def _check_over(self, joins: Sequence[exp.Join], relations: Sequence[Relation]) -> None:
        if not joins:
            return
        overs = [{node.over for node in walk(relation.rows) if isinstance(node, Scan)} for relation in relations]
        for join, relation, own_keys in zip(joins, relations[1:], overs[1:], strict=True):
            if len(overs[0] | own_keys) > 1:
                over, other_key = (next(iter(keys - {None}), None) for keys in (overs[0], own_keys))
                fix = "write the same OVER on both sides, or leave it out on both"
                message = f"{relations[0].name} {_over_text(over)}, {relation.name} {_over_text(other_key)}"
                if str(over) == str(other_key):
                    message += ", but the key has not the same type"
                    fix = f"declare one type of {over} for both: in fields of an input, or by CREATE TABLE (of results too)"
                raise self.source.error("OVER", join, message, fix=fix)

    def _check_over_key(self, join: exp.Join, relations: Sequence[Relation], on: OnCondition) -> None:
        """Refuse an ON that does not require the keys of OVER to be equal, as Stream Analytics does: it matches within a key only."""
        over = next((node.over for node in walk(relations[0].rows) if isinstance(node, Scan)), None)
        for part in keys_of(over) if on.bounds is not None else ():
            if not any(all(_may_be_over(key, relations, part) for key in pair) for pair in on.keys):
                first, new = relations[on.time_of].name, relations[-1].name
                message = f"ON does not require that {part}, {'the' if part == over else 'a'} key of OVER, is equal on both sides"
                fix = "add it: with OVER rows of different keys never match"
                example = f"ON {first}.{part} = {new}.{part} AND {_between(relations[on.time_of], relations[-1])}"
                raise self.source.error("OVER", join, message, fix=fix, example=example)


@dataclass(frozen=True)
class _OnNames(ScopeNames):
    """Names in ON, where the name of an input may mean its time."""

    # The relation whose time a name means, by the offset of the name.
    times: Mapping[int, int] = field(default_factory=dict)
    # The offsets at which only a time can stand: names alone in DATEDIFF.
    only_times: frozenset[int] = frozenset()

    def resolve(self, path: tuple[str, ...], offset: int) -> Expr:
        if offset in self.times:
            return replace(_time_of(self.times[offset], path[0]), offset=offset)
        hidden = next(
            (relation for relation in self.relations if relation.schema and relation.schema.name.lower() == path[0].lower()), None
        )
        if offset in self.only_times and (hidden is not None or sum(relation.may_have(path) for relation in self.relations) != 1):
            names = [relation.name for relation in self.relations]
            message = f"{path[0]} is called {hidden.name} here" if hidden else f"no side of the join is called {path[0]}"
            fix = "write that name" if hidden else suggest(path[0], names, f"sides are {', '.join(names)}")
            raise self.source.error("FIELD", offset, message, fix=fix, example=_between(self.relations[0], self.relations[-1]))
        return super().resolve(path, offset)

    def time_of_side(self, name: str, offset: int) -> Expr | None:
        # The places of such names are known beforehand: in ON a column of the same name is no obstacle.
        return None


def _times(node: exp.Expr, relations: Sequence[Relation]) -> dict[int, int | None]:
    """Return the places in ON where a bare name may be the time of an input, each with the input, or None."""
    relation_by_offset: dict[int, int | None] = {}
    known = {name.lower() for relation in relations for name in relation.known_columns}
    # On a side of a comparison the name of an input is its time only if no side has a column of that name; in DATEDIFF always.
    for comparison in node.find_all(exp.LT, exp.LTE, exp.GT, exp.GTE):
        for side in (comparison.this, comparison.expression):
            if isinstance(side, exp.Column) and len(side.parts) == 1 and side.name.lower() not in known:
                relation_by_offset |= {
                    offset_of(side): index for index, relation in enumerate(relations) if side.name.lower() in relation.names
                }
    for call in node.find_all(exp.Anonymous):
        if str(call.name).lower() == "datediff":
            for argument in call.expressions[1:]:
                if isinstance(argument, exp.Column) and len(argument.parts) == 1:
                    relation_by_offset[offset_of(argument)] = next(
                        (index for index, relation in enumerate(relations) if argument.name.lower() in relation.names), None
                    )
    return relation_by_offset


def _time_of(index: int, name: str = "System.Timestamp()") -> RelationLeaf:
    return RelationLeaf(index, name, Kind.DATETIME, SystemTimestamp())


def _between(first: Relation, new: Relation) -> str:
    return f"DATEDIFF(minute, {first.name}, {new.name}) BETWEEN 0 AND 10"


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    if (isinstance(expr, Call) and expr.name == "and") or (isinstance(expr, Required) and expr.requirement is Requirement.CONDITION):
        for part in expr.parts:
            yield from _conjuncts(part)
    else:
        yield expr


def _ends(part: Expr) -> tuple[Call, int | None, int | None] | None:
    """Return the DATEDIFF that *part* limits by constants, with its least and greatest allowed value."""
    if not isinstance(part, Call) or part.name not in ("between", *_MIRRORED):
        return None
    value, *limits = part.args
    name = part.name
    if isinstance(value, Literal):
        value, limits, name = limits[0], [value], _MIRRORED.get(name, "")
    ends = [limit.value for limit in limits if isinstance(limit, Literal) and limit.kind is Kind.BIGINT]
    if not (isinstance(value, Call) and value.name == "datediff") or len(ends) != len(limits) or not name:
        return None
    low = {"between": ends[0], "=": ends[0], ">": _add(ends[0], 1), ">=": ends[0]}.get(name)
    high = {"between": ends[-1], "=": ends[0], "<": _add(ends[0], -1), "<=": ends[0]}.get(name)
    return value, _add(low), _add(high)


def _ranged_fields(part: Expr) -> Iterator[str]:
    """Yield the fields that bound a range over several relations: ``expires`` of ``b.at BETWEEN a.at AND a.expires``."""
    if isinstance(part, Call) and part.name in ("between", "<", "<=", ">", ">=") and len(_relations_of(part)) > 1:
        yield from (
            leaf.leaf.path[-1]
            for arg in part.args[1:]
            for leaf in arg.walk()
            if isinstance(leaf, RelationLeaf) and isinstance(leaf.leaf, Field)
        )


def _add(value: object, more: int = 0) -> int | None:
    """Return the sum; None if *value* is no integer."""
    return value + more if isinstance(value, int) else None


def _without(parts: Sequence[Expr], used: Sequence[Expr]) -> list[Expr]:
    """Return the *parts* that are not *used*, by identity: equal conditions may stand twice in ON."""
    return [part for part in parts if not any(part is other for other in used)]


def _limits_both_directions(bounds: Sequence[Bound]) -> bool:
    return any(bound.low is not None for bound in bounds) and any(bound.high is not None for bound in bounds)


def _key(part: Expr, new: int) -> tuple[Expr, Expr] | None:
    """Return the expressions over the earlier relations and the new one that *part* requires to be equal, or None."""
    if not isinstance(part, Call) or part.name != "=":
        return None
    left, right = part.args
    if _relations_of(left) == {new}:
        left, right = right, left
    before = _relations_of(left)
    return (left, right) if before and new not in before and _relations_of(right) == {new} else None


def _relations_of(expr: Expr) -> set[int]:
    return {part.index for part in expr.walk() if isinstance(part, RelationLeaf)}


def _may_be_over(key: Expr, relations: Sequence[Relation], over: Expr) -> bool:
    """Return whether *key*, over one relation of a join, can be the key of OVER: it is no other field of the events."""
    inner = key.arg if isinstance(key, CaseFolded) else key
    indexes = _relations_of(inner)
    key_origins = origins(relations[min(indexes)].rows, over_own_rows(inner)) if len(indexes) == 1 else (None,)
    # What an expression or a member of a whole row is remains open.
    return any(origin is None or origin.expr == over or not isinstance(_field_of(origin.expr), Field) for origin in key_origins)


def _field_of(expr: Expr) -> Expr:
    return expr.arg if isinstance(expr, Cast) and expr.declared else expr


def _conditions_before(ons: Sequence[OnCondition], index: int) -> list[Expr]:
    return [part for on in ons for part in on.conditions_before.get(index, ())]


def _sides(layout: Layout) -> list[Rows]:
    sides = [rows for rows in layout.rows if not isinstance(rows, (Scan, Filter))]
    assert len(sides) == len(layout.rows), "each relation of a join is laid out in columns"
    return sides


def _filter(relation: Relation, conditions: Sequence[Expr]) -> Relation:
    if not conditions:
        return relation
    rows = relation.rows
    for condition in conditions:
        rows = Filter(rows, Required(over_own_rows(condition), Requirement.CONDITION))
    if relation.schema is not None:
        return replace(relation, rows=rows)
    assert not isinstance(relation.rows, (Scan, Filter))
    everything = tuple(Column(column.name, slot(relation.rows, place)) for place, column in enumerate(relation.rows.columns))
    return replace(relation, rows=Project(rows, everything))


def _all_of(conditions: Sequence[Expr]) -> Expr | None:
    if not conditions:
        return None
    return Required(conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions)), Requirement.CONDITION)


def _is_reference(relation: Relation) -> bool:
    return relation.schema is not None and relation.schema.is_reference


def _over_text(over: Expr | None) -> str:
    return f"is read OVER {over}" if over is not None else "without OVER"
