"""
TZif (RFC 8536), the form of a zone in the database -> the instants at which its clock is changed, and how far it is ahead of UTC between
them.

A file lists changes up to some year; for later ones it ends with a rule such as ``CET-1CEST,M3.5.0,M10.5.0/3``, whose changes are listed
here up to the year 10000.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ordering.arrays import Ints

_HEADER = struct.Struct(">4sc15x6l")
_YEAR_MAX = 10_000
_DAY_S, _HOUR_S = 86_400, 3_600
_NAME = r"(?:<[^>]+>|[A-Za-z]+)"
_CLOCK = r"[+-]?\d+(?::\d+(?::\d+)?)?"
_RULE = re.compile(rf"{_NAME}({_CLOCK})(?:{_NAME}({_CLOCK})?,([^,/]+)(?:/({_CLOCK}))?,([^,/]+)(?:/({_CLOCK}))?)?")
_DEFAULT_CLOCK_S = 2 * _HOUR_S  # a rule without a time changes the clock at 02:00
_THURSDAY = 4  # 1970-01-01 in the days of a rule, which count from Sunday, 0


@dataclass(frozen=True, slots=True)
class ZoneChanges:
    """The instants at which a clock is changed, rising, and its offsets from UTC before the first, and after each; in seconds."""

    instants_s: Ints
    offsets_s: Ints


def read_changes(data: bytes) -> ZoneChanges:
    """Read the bytes of a TZif file of version 2 or later."""
    instants, offsets, text = _listed_changes(data)
    rule = _Rule.parse(text)
    last_s = int(instants[-1]) if len(instants) else -(2**62)
    later = [change for year in range(_first_year(instants), _YEAR_MAX + 1) for change in rule.changes_of(year) if change[0] > last_s]
    all_instants = np.append(instants, np.array([at for at, _ in later], dtype=np.int64))
    all_offsets = np.append(offsets, np.array([offset for _, offset in later], dtype=np.int64))
    # Only a changed offset is a change; names and the mark of summer time do not matter.
    matters = np.diff(all_offsets) != 0
    return ZoneChanges(all_instants[matters], np.append(all_offsets[:1], all_offsets[1:][matters]))


class _FileChanges(NamedTuple):
    """The changes that a file lists, with an offset more than instants, and its rule for later ones."""

    instants: Ints
    offsets: Ints
    rule: str


def _listed_changes(data: bytes) -> _FileChanges:
    start, width = 0, 4
    while True:
        magic, version, isutcnt, isstdcnt, leapcnt, timecnt, typecnt, charcnt = _HEADER.unpack_from(data, start)
        assert (magic, version >= b"2") == (b"TZif", True), "a file of the time zone database is of another form"
        start += _HEADER.size
        block = timecnt * (width + 1) + typecnt * 6 + charcnt + leapcnt * (width + 4) + isstdcnt + isutcnt
        if width == 8:
            break
        # The first block repeats the second one in 32 bits.
        start, width = start + block, 8
    instants = np.frombuffer(data, ">i8", timecnt, start).astype(np.int64)
    types = np.frombuffer(data, np.uint8, timecnt, start + 8 * timecnt)
    of_types = [struct.unpack_from(">lBB", data, start + 9 * timecnt + 6 * number)[0] for number in range(typecnt)]
    offsets = np.array([of_types[0], *(of_types[number] for number in types)], dtype=np.int64)
    return _FileChanges(instants, offsets, data[start + block :].strip(b"\n").decode("ascii"))


@dataclass(frozen=True, slots=True)
class _Rule:
    """The days on which a clock is put forward and back, its readings then, and its offsets; without days it never is."""

    standard_s: int = 0
    summer_s: int = 0
    begin: str = ""
    begin_clock_s: int = 0
    end: str = ""
    end_clock_s: int = 0

    @classmethod
    def parse(cls, text: str) -> _Rule:
        match = _RULE.fullmatch(text)
        assert match is not None or not text, f"the rule {text} of the time zone database is of another form"
        if match is None or match[3] is None:
            return cls()
        # A rule counts the hours west of Greenwich.
        standard_s = -_seconds(match[1])
        summer_s = standard_s + _HOUR_S if match[2] is None else -_seconds(match[2])
        return cls(standard_s, summer_s, match[3], _clock(match[4]), match[5], _clock(match[6]))

    def changes_of(self, year: int) -> list[tuple[int, int]]:
        """Return the instants at which the clock is changed in a year, rising, each with the offset after it."""
        if not self.begin:
            return []
        # The clock that is running says when it is changed.
        begins = _day_of_rule(self.begin, year) * _DAY_S + self.begin_clock_s - self.standard_s
        ends = _day_of_rule(self.end, year) * _DAY_S + self.end_clock_s - self.summer_s
        return sorted([(begins, self.summer_s), (ends, self.standard_s)])


def _clock(text: str | None) -> int:
    return _DEFAULT_CLOCK_S if text is None else _seconds(text)


def _seconds(text: str) -> int:
    hours, minutes, seconds, *_ = [*map(int, text.lstrip("+-").split(":")), 0, 0]
    return (-1 if text.startswith("-") else 1) * (hours * _HOUR_S + minutes * 60 + seconds)


def _day_of_rule(text: str, year: int) -> int:
    """Return the day since 1970 that a rule means: ``M3.5.0``, the last Sunday of March; ``J60``; ``59``."""
    first = _day(year, 1, 1)
    if text.startswith("J"):
        number = int(text[1:])
        return first + number - 1 + (number > 59 and _day(year, 3, 1) - first == 60)
    if not text.startswith("M"):
        return first + int(text)
    month, week, weekday = map(int, text[1:].split("."))
    begin, end = _day(year, month, 1), _day(year + month // 12, month % 12 + 1, 1)
    day = begin + (weekday - (begin + _THURSDAY)) % 7 + 7 * (week - 1)
    # The fifth one is the last one.
    return day if day < end else day - 7


def _day(year: int, month: int, day: int) -> int:
    """Return a day of the Gregorian calendar as days since 1970."""
    years = year - (month <= 2)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return years // 400 * 146_097 + (years % 400) * 365 + years % 400 // 4 - years % 400 // 100 + day_of_year - 719_468


def _first_year(instants: Ints) -> int:
    """Return a year that is not after that of the last of some instants."""
    return 1970 + int(instants[-1]) // (366 * _DAY_S) - 1 if len(instants) else 1970
