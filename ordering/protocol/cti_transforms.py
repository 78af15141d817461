"""
What a CTI becomes on its way through an operator.

Law: an operator's output CTI is the least System.Timestamp that a result still to come can have (spec section 5). Put
exactly: let *c* be the CTIs of its inputs, and *P* their events below them. For every way in which the inputs may go on,
that is for all events at or above c, the results below ``transform(c)`` are those of P alone: nothing is added to them and
none is taken back. A transform is *tight* where no larger bound would keep that promise: some continuation brings a
result stamped ``transform(c)``.

| operator | transform | tight |
|---|---|---|
| filter, projection | :func:`same` | yes |
| LAG, LAST, ISFIRST | :func:`same` | yes |
| sliding and snapshot windows, session windows at their end | :func:`same` | yes |
| tumbling and hopping windows at their end, and GROUP BY over them | :func:`same` | up to the next window end |
| UNION, temporal join | :func:`least` | yes, if the join's bounds allow equal times; what it holds is not asked |
| left outer join | :class:`LeftOuter`, the minimum | as a join |
| timestamps shifted by d | :class:`Shift` | yes |
| a CTI delay | :class:`Delay` | it says less on purpose |
| tumbling and hopping windows stamped at their start | :class:`GridStart` | yes, where windows leave no gaps |
| sessions, snapshots and lifetimes stamped at a start before c | :class:`OpenStart` | yes |

Each transform is pure and never falls when its inputs rise. ``NEVER`` stays ``NEVER``: an input that has said nothing promises
nothing. ``INFINITY`` stays ``INFINITY``: where no event can come, no window is open. In between all arithmetic stays inside
int64: what would leave it becomes the nearest time that is neither of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ordering.ticks import INFINITY, NEVER

Transform = Callable[..., int]
"""Takes the CTI of each input of an operator, in their order; returns its output CTI. All are microseconds."""


def same(c: int) -> int:
    """
    Pass c on: results are stamped at their event, or at the end of the window that it ends, enters or leaves.

    A window ``(start, end]`` is settled by the events up to its end, which are known once c is above it; so a later result
    ends at c or after. On a grid of window ends nothing comes before the first of them that is not below c; saying c is
    what the specification asks for, and serves readers that know no grid.
    """
    return c


def least(*ctis: int) -> int:
    """
    Return the minimum: UNION passes each event on, a join stamps a pair at the later of both.

    One of a later pair is a later event of its input, at that input's c or after; the pair is stamped there or later still.
    """
    return min(ctis)


def shifted(c: int, by_us: int) -> int:
    """Return c moved by *by_us* microseconds, later or (negative) earlier; ``NEVER`` and ``INFINITY`` stay."""
    if c in (NEVER, INFINITY):
        return c
    return min(max(c + by_us, NEVER + 1), INFINITY - 1)


def pulled_back(c: int, start_us: int | None) -> int:
    """
    Return how far results stamped at their start are settled: c, or the start of the oldest one still open.

    Args:
        c: The input's CTI, microseconds.
        start_us: Start of the oldest window or lifetime that c leaves open, microseconds; None if there is none.
    """
    if c in (NEVER, INFINITY) or start_us is None:
        return c
    return min(c, max(start_us, NEVER + 1))


@dataclass(frozen=True, slots=True)
class Shift:
    """
    Results stamped d later than their event, or earlier: c + d.

    Args:
        by_us: d, microseconds.
    """

    by_us: int

    def __call__(self, c: int) -> int:
        """Return the output CTI."""
        return shifted(c, self.by_us)


@dataclass(frozen=True, slots=True)
class Delay:
    """
    A stage that says less than it knows: c - delay.

    Args:
        by_us: The delay, microseconds, not negative.
    """

    by_us: int

    def __call__(self, c: int) -> int:
        """Return the output CTI."""
        return shifted(c, -self.by_us)


@dataclass(frozen=True, slots=True)
class GridStart:
    """
    Tumbling and hopping windows ``(start, end]`` whose results are stamped at their start.

    The oldest open window is the first whose end is not below c: an event at its end may still come, and whatever was
    below c decides nothing about it. With hops beyond the size c may lie between windows; then c itself is said.

    Args:
        size_us: Length of a window, microseconds.
        hop_us: Distance between two ends, microseconds; the size for tumbling windows.
        offset_us: Shift of all ends against the Unix epoch, microseconds.
    """

    size_us: int
    hop_us: int
    offset_us: int = 0

    def oldest_open_us(self, c: int) -> int:
        """Return the start of the oldest window that c leaves open, microseconds."""
        return c + (self.offset_us - c) % self.hop_us - self.size_us

    def __call__(self, c: int) -> int:
        """Return the output CTI."""
        return pulled_back(c, self.oldest_open_us(c))


@dataclass(frozen=True, slots=True)
class OpenStart:
    """
    Sessions, snapshots and lifetimes that are stamped at their start and close by what comes after: only state knows them.

    A session is open while an event at c could still belong to it; a snapshot of intervals ``[start, end)`` while c is
    below its end; a lifetime that the next event clips, until that event has come. An operator makes a new value whenever
    the start of its oldest open one changes.

    Args:
        oldest_us: Start of the oldest one that c leaves open, microseconds; None if none is open.
    """

    oldest_us: int | None

    def __call__(self, c: int) -> int:
        """Return the output CTI."""
        return pulled_back(c, self.oldest_us)


@dataclass(frozen=True, slots=True)
class LeftOuter:
    """
    ``LEFT JOIN ... ON DATEDIFF(unit, left, right) BETWEEN low AND high``: pairs, and left rows that find none.

    DATEDIFF counts unit boundaries crossed, as in T-SQL: ``right // u - left // u`` for a unit of u microseconds. So a left
    row at l matches the right events in ``[(l // u + low) * u, (l // u + high + 1) * u)``. An unmatched row is stamped at the
    first instant at which no match can come any more, that end, or at l where l is later.

    The output CTI is c, the lesser of both CTIs, although stamps of unmatched rows depend on rows seen long ago. Proof. A
    pair that is still to come holds an event at c or after, and is stamped there or later. A row at l, stamped u(l), is
    settled as soon as the right CTI has reached u(l): all right events it could match lie below. Take a stamp below c.
    If l is below the left CTI, the row is known and c > u(l) says that it is settled. If not, then u(l) >= l >= c, which is
    no stamp below c. So every row stamped below c is settled, whether it matched or not. It is tight: a left and a right
    event at c may match and are stamped c. Of unmatched rows alone, with high >= 0, c itself is never used: one that is not
    settled has u(l) above the right CTI, and one still to come has u(l) > l >= c. So an operator may let unmatched rows go
    as soon as they are settled, and c still holds.

    Args:
        unit_us: Length u of the unit, microseconds.
        low: Fewest boundaries crossed from left to right; may be negative.
        high: Most.
    """

    unit_us: int
    low: int
    high: int

    def matches(self, left_us: int, right_us: int) -> bool:
        """Tell whether two events are within the bounds."""
        return self.low <= right_us // self.unit_us - left_us // self.unit_us <= self.high

    def unmatched_us(self, left_us: int) -> int:
        """Return System.Timestamp of a left row without a match, microseconds."""
        if self.low > self.high:
            return left_us
        return max(left_us, (left_us // self.unit_us + self.high + 1) * self.unit_us)

    def __call__(self, left: int, right: int) -> int:
        """Return the output CTI."""
        return least(left, right)


@dataclass(frozen=True, slots=True)
class Applied:
    """
    An operator of a plan.

    Args:
        transform: What it does to CTIs.
        inputs: Where it reads from: other operators, or inputs of the plan by their names.
    """

    transform: Transform
    inputs: tuple[Applied | str, ...]


def output_cti(plan: Applied | str, ctis: Mapping[str, int]) -> int:
    """
    Return the CTI of a plan's results, microseconds.

    The law carries over from operators to plans: what an operator reads below its input's CTI is settled, so what it
    gives below its own is.

    Args:
        plan: The plan's last operator.
        ctis: The CTI of each of its inputs, microseconds; ``NEVER`` for those that have not spoken.
    """
    if isinstance(plan, str):
        return ctis[plan]
    return plan.transform(*(output_cti(source, ctis) for source in plan.inputs))
