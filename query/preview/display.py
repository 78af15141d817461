"""Shows a plan as text or JSON: operators, keys, look-back, state, parallelism and its reason, and what a start would read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ordering.errors import TidegateError
from ordering.ticks import NEVER, format_duration, format_tick
from query.absent_columns import CODE
from query.plan.columns_read import fields_extracted
from query.plan.local_windows import zones_of
from query.plan.nodes import UNBOUNDED, Analyze, Join, Node, Plan, Recognize, ReferenceJoin, WindowedAggregate, walk
from query.reference.csv_types import CODE as TYPE
from query.start.bound_geography import geography_binding, uses_geography
from tidegate.language.expressions.functions.geography import library_versions, package_versions
from tidegate.language.time_zones.database import database_version
from tidegate.platform.settings.tables.references import ReferenceSettings

if TYPE_CHECKING:  # without brokers there is none
    from query.preview.forecast import Forecast

RETENTION = "TG-LINT-RETENTION"
KEEP_LONGER = "a start may need events that are deleted by then: keep events longer (retention), or shorten the window"


@dataclass(frozen=True, slots=True)
class PlanReport:
    """A script's plans, and the facts about them that ``tidegate plan`` shows."""

    plans: Sequence[Plan]
    # Into how many buckets the work is split and why, in words.
    parallelism: str
    # The CTI pacing of each output.
    paces: dict[str, str]
    # None if the brokers do not answer; ``unknown`` then says why.
    forecast: Forecast | None
    unknown: str
    # Where retention may delete records that a start needs.
    warnings: Sequence[str]
    # The tables of reference data that it looks rows up in.
    references: Sequence[ReferenceSettings] = ()
    # Why stores of its outputs do not fit, or that they do not answer.
    stores: Sequence[TidegateError] = ()
    # By way of which topic, and by whom, results reach the stores of its outputs.
    copies: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        for plan in self.plans:
            yield plan.explain()
            yield f"keys: {', '.join(describe_keys(plan)) or 'none'}"
            if plan.output in self.paces:
                yield f"pace: {self.paces[plan.output]}"
        for input, fields in fields_extracted(self.plans).items():
            yield f"fields of {input}: {', '.join(map(str, fields)) or 'none'}"
        yield from (f"time zones: {line}" for line in self._zones())
        if uses_geography(self.plans):
            yield f"geography: {library_versions()} ({package_versions()})"
        yield f"parallelism: {self.parallelism}"
        yield from (f"state: {line}" for line in self._state())
        yield from map(_reference_in_words, self.references)
        yield from (f"results of {line}" for line in self.copies)
        if self.forecast is not None and self.forecast.reading is not None:
            yield from self.forecast.reading.lines()
        yield from (f"warning {code}: {what}{f'; {fix}' if fix else ''}" for code, what, fix in self._warnings())

    def _warnings(self) -> list[tuple[str, str, str]]:
        absent = self.forecast.absent if self.forecast else ()
        stores = [(error.code, error.what, error.fix) for error in self.stores]
        types = [warning for table in self.references for warning in _type_warnings(table)]
        return types + [(RETENTION, what, KEEP_LONGER) for what in self.warnings] + [(CODE, *warning) for warning in absent] + stores

    def _zones(self) -> list[str]:
        zones = ", ".join(zone.name for zone in zones_of(self.plans))
        return [f"{zones}, by the database {database_version()}"] if zones else []

    def _state(self) -> list[str]:
        if self.forecast is not None:
            return [kept.in_words() for kept in self.forecast.kept]
        lookback_us = max(plan.lookback_us for plan in self.plans)
        if not lookback_us:
            return ["none: nothing is looked back on"]
        span = "all events" if lookback_us == UNBOUNDED else f"at most the events of {format_duration(lookback_us)}"
        return [f"{span}; how many that are is not known: {self.unknown}"]

    def as_dict(self) -> dict[str, Any]:
        forecast = self.forecast
        return {
            "outputs": [_plan_fields(plan, self.paces.get(plan.output)) for plan in self.plans],
            "fields": {input: [str(field) for field in fields] for input, fields in fields_extracted(self.plans).items()},
            "time_zones": {
                "zones": {zone.name: zone.digest for zone in zones_of(self.plans)},
                "database": database_version(),
            },
            "geography": geography_binding(self.plans) or None,
            "parallelism": {"buckets": forecast.buckets if forecast else None, "why": self.parallelism},
            "state": [kept.as_dict() for kept in forecast.kept] if forecast else None,
            "reading": forecast.reading.as_dict() if forecast and forecast.reading else None,
            "references": [
                {
                    "name": table.name,
                    "versions": [{"valid_from": _format_instant(begins), "file": str(path)} for begins, path in _versions(table)],
                    "taken_up": "while it runs" if table.has_pattern else "at a start",
                }
                for table in self.references
            ],
            "copies": list(self.copies),
            "unknown": self.unknown or None,
            "warnings": [{"code": code, "what": what, "fix": fix} for code, what, fix in self._warnings()],
        }


# Reference data is read by way of slow imports, which a script without any does not need.
def _type_warnings(table: ReferenceSettings) -> list[tuple[str, str, str]]:
    from query.reference.files import load_reference

    return [(TYPE, f"{found.where}: {found.what}", found.fix) for found in load_reference(table).warnings]


def _versions(table: ReferenceSettings) -> Sequence[tuple[int, object]]:
    from query.reference.files import versions_of

    return versions_of(table)


def _reference_in_words(table: ReferenceSettings) -> str:
    versions = _versions(table)
    (newest_us, newest), older_count = versions[-1], len(versions) - 1
    since = f"{older_count + 1} version{'s' * bool(older_count)}, the newest valid from {_format_instant(newest_us)} on"
    if table.has_pattern:
        return f"reference {table.name}: {since}; new files of {table.path} are read while it runs"
    validity = f"{newest}, always valid" if newest_us == NEVER else since
    return f"reference {table.name}: {validity}; files are read at a start, and must not change"


def _format_instant(us: int) -> str | None:
    return None if us == NEVER else format_tick(us)


def _plan_fields(plan: Plan, pace: str | None) -> dict[str, Any]:
    lookback_us = plan.lookback_us
    return {
        "output": plan.output,
        "inputs": list(plan.inputs),
        "references": list(plan.references),
        "operators": list(_operator_fields(plan.root, 0)),
        "keys": describe_keys(plan),
        "over": str(plan.over) if plan.over else None,
        "lookback": None if lookback_us == UNBOUNDED else format_duration(lookback_us),
        "lookback_us": None if lookback_us == UNBOUNDED else lookback_us,
        "columns": [{"name": name, "type": kind} for name, kind in plan.columns],
        "pace": pace,
    }


def _operator_fields(node: Node, depth: int) -> Iterator[dict[str, Any]]:
    yield {"depth": depth, "operator": type(node).__name__, "in_words": node.describe()}
    for child in node.children:
        yield from _operator_fields(child, depth + 1)


def describe_keys(plan: Plan) -> list[str]:
    """Return the keys by which a plan's operators separate or match rows, each once."""
    keys = [f"substreams of {plan.over}"] if plan.over else []
    for node in walk(plan.root):
        if isinstance(node, WindowedAggregate):
            keys += [f"groups of {', '.join(map(str, node.keys))}"] if node.keys else []
        elif isinstance(node, Analyze):
            keys += [f"partitions of {', '.join(map(str, analytic.partition))}" for analytic in node.analytics if analytic.partition]
        elif isinstance(node, Recognize):
            keys += [f"partitions of {', '.join(map(str, node.partition))}"] if node.partition else []
        elif isinstance(node, (Join, ReferenceJoin)):
            keys += [f"matches of {left} = {right}" for left, right in node.keys]
    return list(dict.fromkeys(keys))
