"""
What policies do to a recording, and which ones would be better: the answer of ``tidegate tune``, for a command or a page.

Law: the answer depends on the recording, the policies and the share alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ordering.policies import Policies
from ordering.ticks import format_duration, format_tick
from ordering.tuning.forecast import EventWalk, Forecast
from ordering.tuning.recording import Recording
from ordering.tuning.trade_off import TradeOff, find_trade_off

Change = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Tuning:
    """
    The policies in force and what they do; the best ones for a share of events touched, and what they do (None: there are none).

    Attributes:
        span_us: The first and the last arrival, microseconds; None: there is no record.
        unreadable: How many records are no events.
    """

    name: str
    records: int
    unreadable: int
    partitions: int
    substreams: int | None
    arrival_clamps: int
    span_us: tuple[int, int] | None
    now: Forecast
    trade_off: TradeOff
    proposed: Forecast | None

    @property
    def changes(self) -> tuple[Change, ...]:
        """The settings that the proposal changes: name, value in force, proposed value."""
        if self.proposed is None:
            return ()
        pairs = [(name, getattr(self.now.policies, f"{name}_us"), getattr(self.proposed.policies, f"{name}_us")) for name in _TOLERANCES]
        return tuple((name, _written(old), _written(new)) for name, old, new in pairs if old != new)

    def difference(self) -> Iterator[str]:
        """Yield the lines of the difference to tidegate.toml; none if nothing changes."""
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
            "now": self.now.to_json(),
            **self.trade_off.to_json(),
            "proposed": None if self.proposed is None else self.proposed.to_json(),
            "changes": {name: {"old": old, "new": new} for name, old, new in self.changes},
        }


_TOLERANCES = ("early", "late", "reorder")


def _written(us: int | None) -> str:
    return "off" if us is None else format_duration(us)


def tune(name: str, recording: Recording, policies: Policies, share: float) -> Tuning:
    """Return what *policies* do to a recording, and the ones that touch at most *share* of its events with the least delay."""
    walk = EventWalk(recording)
    now = walk.forecast(policies)
    trade_off = find_trade_off(walk, policies, share)
    best = trade_off.proposal
    proposed = None
    if best is not None:
        proposed = walk.forecast(replace(policies, early_us=trade_off.early_us, late_us=best.late_us, reorder_us=best.reorder_us))
    return Tuning(
        name=name,
        records=len(recording),
        unreadable=len(recording) - len(walk),
        partitions=recording.partitions,
        substreams=walk.timelines if recording.has_substreams else None,
        arrival_clamps=recording.arrival_clamps,
        span_us=(int(recording.arrival_us.min()), int(recording.arrival_us.max())) if len(recording) else None,
        now=now,
        trade_off=trade_off,
        proposed=proposed,
    )
