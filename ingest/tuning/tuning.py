"""
What policies do to a recording, and which ones would be better: the answer of ``tidegate tune``, for a command or a page.

Law: the answer depends on the recording, the policies, the share and the windows alone, not on what was asked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ordering.arrays import Ints
from ordering.policies import Policies
from ordering.ticks import format_duration, format_tick
from ordering.tuning.forecast import EventWalk, Forecast
from ordering.tuning.recording import Recording
from ordering.tuning.results import EventWindows, WindowShape
from ordering.tuning.trade_off import TradeOff, find_trade_off

Change = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Tuning:
    """Policies and what they do; the best ones for a share of events touched, and what they do (None: there are none)."""

    name: str
    records: int
    # How many records are no events.
    unreadable: int
    partitions: int
    substreams: int | None
    arrival_clamps: int
    # The first and the last arrival, microseconds; None: there is no record.
    span_us: tuple[int, int] | None
    own_policies: Policies
    # What those of the settings do; None: it cannot be forecast (a reorder of -1us).
    in_force: Forecast | None
    # What the policies do that were asked about.
    now: Forecast
    trade_off: TradeOff
    proposed: Forecast | None

    @property
    def changes(self) -> tuple[Change, ...]:
        """The settings that the proposal changes: name, value in force, proposed value."""
        return () if self.proposed is None else _changes(self.own_policies, self.proposed.policies)

    @property
    def tried_changes(self) -> tuple[Change, ...]:
        """The settings that the policies asked about change."""
        return _changes(self.own_policies, self.now.policies)

    def difference(self) -> Iterator[str]:
        """Yield the lines of the proposal's difference to tidegate.toml; none if nothing changes."""
        if not self.changes:
            return
        yield f"  [inputs.{self.name}]"
        for name, old, new in self.changes:
            yield f'- {name} = "{old}"'
            yield f'+ {name} = "{new}"'

    def to_json(self) -> dict[str, Any]:
        span = None if self.span_us is None else [format_tick(time_us) for time_us in self.span_us]
        return {
            "name": self.name,
            "records": self.records,
            "unreadable": self.unreadable,
            "partitions": self.partitions,
            "substreams": self.substreams,
            "arrival_clamps": self.arrival_clamps,
            "arrivals": span,
            "in_force": None if self.in_force is None else self.in_force.to_json(),
            "now": self.now.to_json(),
            **self.trade_off.to_json(),
            "proposed": None if self.proposed is None else self.proposed.to_json(),
            "changes": {name: {"old": old, "new": new} for name, old, new in self.changes},
            "tried_changes": {name: {"old": old, "new": new} for name, old, new in self.tried_changes},
        }


_TOLERANCES = ("early", "late", "reorder")
_ACTIONS = ("early_action", "late_action", "out_of_order_action")
# So many answers about one recording are remembered: sliders go to and fro.
_KEPT_MAX = 64


def _changes(old: Policies, new: Policies) -> tuple[Change, ...]:
    pairs = [(name, _written(getattr(old, f"{name}_us")), _written(getattr(new, f"{name}_us"))) for name in _TOLERANCES]
    pairs += [(name, str(getattr(old, name)), str(getattr(new, name))) for name in _ACTIONS]
    return tuple((name, before, after) for name, before, after in pairs if before != after)


def _written(us: int | None) -> str:
    return "off" if us is None else format_duration(us)


class Tuner:
    """A recording, prepared once, that can be asked about many policies; *own* are those of the settings."""

    def __init__(self, name: str, recording: Recording, own: Policies) -> None:
        self._name, self._recording, self._own = name, recording, own
        self._walk = EventWalk(recording)
        self._windows: dict[WindowShape, EventWindows] = {}
        self._forecasts: dict[tuple[Policies, tuple[WindowShape, ...]], Forecast] = {}
        self._trade_offs: dict[tuple[Policies, float], TradeOff] = {}

    def tune(self, policies: Policies, share: float, shapes: Sequence[WindowShape] = ()) -> Tuning:
        """
        Return what *policies* do, with the windows of each of *shapes* that they change, and the policies that touch at most *share* of the
        events with the least delay. SettingError: a reorder of -1us.
        """
        recording, walk, shapes = self._recording, self._walk, tuple(shapes)
        trade_off = self._find_trade_off(policies, share)
        best, proposed = trade_off.proposal, None
        if best is not None:
            chosen = replace(policies, early_us=trade_off.early_us, late_us=best.late_us, reorder_us=best.reorder_us)
            proposed = self._forecast(chosen, shapes)
        return Tuning(
            name=self._name,
            records=len(recording),
            unreadable=len(recording) - len(walk),
            partitions=recording.partitions,
            substreams=walk.timelines if recording.has_substreams else None,
            arrival_clamps=recording.arrival_clamps,
            span_us=(int(recording.arrival_us.min()), int(recording.arrival_us.max())) if len(recording) else None,
            own_policies=self._own,
            in_force=self._forecast(self._own, shapes) if self._own.reorder_us >= 0 else None,
            now=self._forecast(policies, shapes),
            trade_off=trade_off,
            proposed=proposed,
        )

    def _find_trade_off(self, policies: Policies, share: float) -> TradeOff:
        # The curve tries every late and reorder tolerance, so it is the same wherever these two sliders stand.
        key = replace(policies, late_us=0, reorder_us=0), share
        if key not in self._trade_offs:
            if len(self._trade_offs) >= _KEPT_MAX:
                self._trade_offs = {}
            self._trade_offs[key] = find_trade_off(self._walk, policies, share)
        return self._trade_offs[key]

    def _forecast(self, policies: Policies, shapes: tuple[WindowShape, ...]) -> Forecast:
        key = policies, shapes
        if key not in self._forecasts:
            if len(self._forecasts) >= _KEPT_MAX:
                self._forecasts = {}
            forecast = self._walk.forecast(policies)
            if shapes:
                times = self._walk.times(policies)
                before = self._walk.times(self._own) if self._own.reorder_us >= 0 else None
                forecast = replace(forecast, results=tuple(self._windows_of(shape).compare(*times, before) for shape in shapes))
            self._forecasts[key] = forecast
        return self._forecasts[key]

    def _windows_of(self, shape: WindowShape) -> EventWindows:
        if shape not in self._windows:
            rows, key = self._walk.rows, self._recording.key
            group: Ints = np.zeros(len(rows), dtype=np.int64) if key is None else key[rows]
            self._windows[shape] = EventWindows(shape, self._recording.event_us[rows], group)
        return self._windows[shape]
