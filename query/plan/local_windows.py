"""
Windows of local time: hours, days and weeks as the clock of a place shows them (:mod:`tidegate.language.time_zones.cells`).

A tumbling window is a cell of its zone. A hopping window ends with each cell of the length of its hop, and holds as many of them as hops
make its size: with a size of 7 days and a hop of a day the last 7 local days, with a size of a day and a hop of an hour the last 24 local
hours, however long each of them lasts. Law: windows are those of :class:`~query.plan.windows.Window`, with cells in place of multiples; so
whatever is true of the one kind and says nothing of lengths is true of the other.

:func:`zones_of` names all zones whose clocks a plan reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from query.plan.nodes import Plan, WindowedAggregate, exprs_in, walk
from query.plan.row_tables import Ticks
from query.plan.windows import Window, windows_of
from tidegate.language.expressions.tree import Zoned
from tidegate.language.time_zones.cells import ZoneSpans
from tidegate.language.time_zones.zone import Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWindow(Window):
    """A tumbling or hopping window of a zone; the size is a multiple of the hop, the offset is one of readings of the clock."""

    zone: Zone

    @property
    def reach_us(self) -> int:
        """How long the longest window since 1970 lasts."""
        return _longest_us(self) if self.size_us > 1 else 0

    @property
    def cells(self) -> ZoneSpans:
        return ZoneSpans.of(self.zone, self.hop_us, self.offset_us)

    @property
    def pane_us(self) -> int:
        return self.hop_us

    def number_of(self, instants_us: Ticks) -> Ticks:
        return self.cells.number_of(instants_us)

    def end_of(self, numbers: Ticks) -> Ticks:
        return self.cells.end_of(numbers)

    def start_of(self, numbers: Ticks) -> Ticks:
        return self.cells.end_of(numbers - self.windows_per_event)

    def first_end(self, system_us: Ticks) -> Ticks:
        return self.end_of(self.number_of(system_us))

    def last_end(self, system_us: Ticks) -> Ticks:
        return self.end_of(self.number_of(system_us) + (self.windows_per_event - 1))

    def pane_end(self, system_us: Ticks) -> Ticks:
        return self.first_end(system_us)

    def __str__(self) -> str:
        # As with `super`, which a dataclass with slots does not have.
        return f"{Window.__str__(self)} in {self.zone}"


@lru_cache(maxsize=256)
def _longest_us(window: LocalWindow) -> int:
    return window.cells.longest_us(window.windows_per_event, 0)


def zones_of(plans: Sequence[Plan]) -> tuple[Zone, ...]:
    """Return each zone once, in the order of names."""
    nodes = dict.fromkeys(node for plan in plans for node in walk(plan.root))
    zones = {expr.zone for node in nodes for expr in exprs_in(node) if isinstance(expr, Zoned)}
    windows = (window for node in nodes if isinstance(node, WindowedAggregate) for window in windows_of(node.window))
    zones |= {window.zone for window in windows if isinstance(window, LocalWindow)}
    return tuple(sorted(zones, key=str))
