"""
Time as int64 microseconds since 1970-01-01T00:00:00Z, called ticks. A duration is a number of ticks too.

Valid event times run from ``TICK_MIN`` to ``TICK_MAX``. Kafka clients replace a record timestamp of 0 ms by the current time, so the first
usable millisecond is 1. ``INFINITY`` is no event time: it is the time of the CTI that ends a stream.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ordering.errors import TickRangeError

MILLISECOND_US = 1_000
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

TICK_MIN = 1_000
TICK_MAX = 253_402_300_799_999_999
# The time of the final CTI: nothing follows.
INFINITY = 2**63 - 1
# Below every valid time, far enough from the edge of int64 that a tolerance can be subtracted or added.
NEVER = -(2**62)

# The longest duration: from year 1 to year 9999. With it every sum of a time and durations stays within int64.
DURATION_US_MAX = 3_652_059 * DAY_US

_UNITS_US = {"us": 1, "ms": MILLISECOND_US, "s": SECOND_US, "m": MINUTE_US, "h": HOUR_US, "d": DAY_US}
_DURATION = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)(us|ms|s|m|h|d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> int:
    """
    Convert a duration such as ``5s``, ``2m``, ``1h``, ``7d``, ``1h30m`` or ``0.5s`` to microseconds. TickRangeError: *text* is not a
    duration, not a whole number of microseconds, or longer than ten thousand years.
    """
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        fix = "write a number and a unit: us, ms, s, m, h or d"
        raise TickRangeError(f"{text!r} is not a duration", code="TG-DURATION", fix=fix, example="5s")
    total = 0
    for number, unit in parts:
        whole, _, fraction = number.partition(".")
        scaled = int(whole + fraction) * _UNITS_US[unit]
        ticks, rest = divmod(scaled, 10 ** len(fraction))
        if rest:
            raise TickRangeError(f"{text!r} is finer than a microsecond", code="TG-DURATION", fix="use whole microseconds", example="1us")
        total += ticks
    if total > DURATION_US_MAX:
        raise TickRangeError(f"{text!r} is longer than ten thousand years", code="TG-DURATION", fix="write a shorter one", example="7d")
    return total


def format_duration(duration_us: int) -> str:
    """Format a duration in the largest units that keep it exact: ``5400000000`` -> ``1h30m``."""
    if duration_us == 0:
        return "0s"
    sign, rest, out = ("-" if duration_us < 0 else ""), abs(duration_us), ""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS_US[unit])
        out += f"{count}{unit}" if count else ""
    return sign + out


def format_tick(tick: int) -> str:
    """Format a time as ISO-8601 in UTC with 0, 3 or 6 fraction digits, as many as it needs."""
    if tick == INFINITY:
        return "infinity"
    if not 0 <= tick <= TICK_MAX:
        return f"{tick}us"
    moment = _EPOCH + timedelta(microseconds=tick)
    fraction = tick % SECOND_US
    precision = "seconds" if fraction == 0 else "milliseconds" if fraction % MILLISECOND_US == 0 else "microseconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def parse_tick(text: str) -> int:
    """
    Convert one ISO-8601 time (default zone UTC) to ticks. For columns use :mod:`ordering.columns.timestamps`. TickRangeError: *text* is no
    ISO-8601 time or lies outside [TICK_MIN, TICK_MAX].
    """
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise TickRangeError(f"{text!r} is not an ISO-8601 time", fix="write date, T, time, zone", example="2001-01-01T00:00:00Z") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    tick = (moment - _EPOCH) // timedelta(microseconds=1)
    if not TICK_MIN <= tick <= TICK_MAX:
        raise TickRangeError(f"{text!r} lies outside {format_tick(TICK_MIN)} to {format_tick(TICK_MAX)}")
    return tick
