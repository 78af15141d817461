"""
An event onward: the windows and results of each query over it that it went into, and of the queries over these results in turn.

Law: it only reads, and it names a result for an event if and only if :mod:`query.trace.result` names the event for the result: the result
is within the query's look-back after the event, its columns that are taken over from the input equal the event's fields, and its key is
the event's if the query has OVER. Only an event at the very beginning of a window, which does not belong to it, is named there alone. As
there, the results may be too many: conditions of the query are not applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ordering.ticks import format_tick
from query.output_plan import find_plan, window_of
from query.plan.nodes import UNBOUNDED, Plan
from query.trace.rows import row_at, shown, text_of
from query.verify.because import conditions_of, payload_of
from query.verify.rows import ResultRow
from tidegate.ordered_topic.compare.sides import make_side
from tidegate.ordered_topic.walk import PartitionWalk
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.settings.load import Settings

# How many results of an output are named, and how many of them are followed in turn.
RESULTS_MAX, FOLLOWED_MAX = 100, 3
# Of more windows text has the first and the last.
_WINDOWS_MAX = 6
_MARGIN = "  "


@dataclass(frozen=True, slots=True)
class OnwardResult:
    """A result that an event went into, and the outputs that this result went into."""

    place: str
    seq: int
    system_us: int
    key: str | None
    value: Any
    outputs: tuple[OnwardOutput, ...]

    def to_json(self) -> dict[str, Any]:
        members = {"place": self.place, "seq": self.seq, "system_timestamp": format_tick(self.system_us), "key": self.key}
        return {**members, "value": self.value, "outputs": [each.to_json() for each in self.outputs]}


@dataclass(frozen=True, slots=True)
class OnwardOutput:
    """An output that an event went into: the ends of its windows, if the query has such, and the results that are there."""

    output: str
    ends_us: tuple[int, ...]
    results: tuple[OnwardResult, ...]

    def to_json(self) -> dict[str, Any]:
        ends = [format_tick(us) for us in self.ends_us]
        return {"output": self.output, "window_ends": ends, "results": [each.to_json() for each in self.results]}

    def lines(self, margin: str) -> Iterator[str]:
        """Yield it in words."""
        yield f"{margin}{self._in_words}"
        for each in self.results:
            key = "" if each.key is None else f" of {each.key}"
            yield f"{margin}{_MARGIN}{each.place}, seq {each.seq:,}{key} at {format_tick(each.system_us)}"
            for output in each.outputs:
                yield from output.lines(margin + 2 * _MARGIN)

    @property
    def _in_words(self) -> str:
        ends = [format_tick(us) for us in self.ends_us]
        named = ends if len(ends) <= _WINDOWS_MAX else [*ends[:2], "...", ends[-1]]
        windows = f": the window{'s' if len(ends) > 1 else ''} ending at {', '.join(named)}" if ends else " reads it"
        return f"{self.output}{windows}{'' if self.results else '; no result is there yet'}"


class OnwardTracer:
    """
    Follows events to results.

    Args:
        folder: Where the paths of the configuration begin.
    """

    def __init__(self, settings: Settings, admin: Admin, folder: Path) -> None:
        self._settings, self._admin, self._folder = settings, admin, folder

    def follow(self, name: str, row: ResultRow, above: tuple[str, ...] = ()) -> Iterator[OnwardOutput]:
        """Yield the outputs that a row of an input went into, or of an output; *above*: the outputs on the way to it."""
        for output, table in self._settings.outputs.items():
            plan = find_plan(self._settings, table, self._folder, partial(self._admin.find, table.topic or output))
            if plan is None or name not in plan.inputs or output in above:
                continue
            ends_us = _window_ends(plan, row.system_us)
            found = self._results(plan, table.topic or output, name, row, ends_us)
            yield OnwardOutput(
                output,
                ends_us,
                tuple(self._result(output, each, above if place < FOLLOWED_MAX else None) for place, each in enumerate(found)),
            )

    def _result(self, output: str, row: ResultRow, above: tuple[str, ...] | None) -> OnwardResult:
        outputs = () if above is None else tuple(self.follow(output, row, (*above, output)))
        return OnwardResult(row.place, row.seq, row.system_us, text_of(row.key), shown(row.value), outputs)

    def _results(self, plan: Plan, topic_name: str, name: str, row: ResultRow, ends_us: tuple[int, ...]) -> list[ResultRow]:
        """Return the first results that a row went into, by time and place; *ends_us*: the ends of its windows, if there are such."""
        topic = self._admin.find(topic_name)
        if topic is None:
            return []
        until_us = None if plan.lookback_us == UNBOUNDED else row.system_us + plan.lookback_us
        is_json = name in self._settings.outputs or self._settings.input(name).format == "json"
        payload, key = payload_of(row.value), (row.key or b"") if plan.over is not None else None
        side, found = make_side("A", self._admin, self._settings.kafka.client_properties(), topic, row.system_us), list[ResultRow]()
        for partition in range(topic.partitions):
            count = len(found)
            for piece in PartitionWalk(side, partition).run(None if until_us is None else until_us + 1):
                times = piece.events.system_us
                in_time = np.isin(times, ends_us) if ends_us else (times >= row.system_us) & (until_us is None or times <= until_us)
                for index in np.flatnonzero(in_time).tolist():
                    result = row_at(piece.events, index, topic.name, partition)
                    is_of_key = key is None or (result.key or b"") == key
                    if is_of_key and all(each.holds(payload) for each in (conditions_of(plan, name, result) if is_json else ())):
                        found.append(result)
                if len(found) - count >= RESULTS_MAX:
                    break
        return sorted(found, key=lambda each: (each.system_us, each.place))[:RESULTS_MAX]


def _window_ends(plan: Plan, system_us: int) -> tuple[int, ...]:
    """Return the ends of the windows of a plan's results that an event is in; none if they are of no such windows."""
    window = window_of(plan)
    # Behind another step, such as a join or another window, a row may be later than its events.
    if window is None or window.size_us != plan.lookback_us:
        return ()
    at = np.array([system_us], dtype=np.int64)
    first, last = int(window.first_end(at)[0]), int(window.last_end(at)[0])
    return tuple(range(first, last + 1, window.hop_us))
