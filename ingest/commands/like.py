"""
The events of ``tidegate produce --like``: as records of a raw topic, or as the lines of a file.

A topic whose broker stamps the records takes them as they arrive, in real time. One whose producers stamp them takes them at once: history
that ends now. Law: the lines of a file depend on the profile and the flags alone: the first record arrives on 2026-01-01.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.commands.sample import Line
from ordering.errors import SettingError
from ordering.ticks import MILLISECOND_US, SECOND_US, parse_tick
from tidegate.basics.bounded_files import RESULTS_BYTES_MAX, read_file_bytes

if TYPE_CHECKING:
    from ingest.tuning.profile import Profile
    from ingest.tuning.rows_like import DrawnRow
    from ordering.tuning.drawn_events import DrawnEvents

START_US = parse_tick("2026-01-01T00:00:00Z")
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Likeness:
    """What ``--like`` and the flags beside it ask for."""

    profile: Profile
    count: int | None
    rate_per_s: float | None
    seed: int
    examples: list[dict[str, Any]]

    @classmethod
    def of(cls, path: Path, count: int | None, rate_per_s: float | None, seed: int, examples: Path | None) -> Likeness:
        """Return it. Raises SettingError: a file cannot be read, or the rate is not above zero."""
        from ingest.tuning.profile import read_profile

        if rate_per_s is not None and not 0 < rate_per_s <= SECOND_US:
            what = f"{rate_per_s:g} events in a second cannot be made"
            raise SettingError(
                what, code="TG-SETTING-VALUE", where="--rate", fix="give a number above 0, at most a million", example="--rate 100"
            )
        return cls(read_profile(path), count, rate_per_s, seed, [] if examples is None else _read_examples(examples))

    def draw(self) -> DrawnEvents:
        """Draw the events."""
        from ingest.tuning.rows_like import draw_events

        return draw_events(self.profile, self.count, self.seed, self.rate_per_s)

    def rows(self, drawn: DrawnEvents, start_us: int) -> Iterator[DrawnRow]:
        """Return the rows of the events that were *drawn*, the first arriving at *start_us*."""
        from ingest.tuning.rows_like import rows_of

        return rows_of(self.profile, drawn, start_us, self.examples)


def write_rows(likeness: Likeness, path: Path) -> int:
    """Write the rows to a file, one a line; return how many."""
    count = 0
    try:
        with path.open("wb") as file:
            for row in likeness.rows(likeness.draw(), START_US):
                file.write(_encode(row.in_file()) + b"\n")
                count += 1
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror}", code="TG-SETTING-FLAG", where="--output") from None
    return count


def history_lines(likeness: Likeness, now_us: int) -> Iterator[Line]:
    """Yield the rows as records of which the last one arrives now."""
    unit_us = likeness.profile.disorder.resolution_us
    drawn = likeness.draw()
    last_us = START_US + int(drawn.arrival_us.max())
    # By whole steps, so that event times keep them.
    shift_us = (now_us - last_us) // unit_us * unit_us
    for row in likeness.rows(drawn, START_US + shift_us):
        yield _line(row, row.arrival_us // MILLISECOND_US)


def live_lines(likeness: Likeness, now_us: int, is_over: Callable[[], bool]) -> Iterator[Line]:
    """Yield the rows as records, each when it arrives, the first one now, until *is_over*."""
    started_s = time.monotonic()
    for row in likeness.rows(likeness.draw(), now_us):
        while (left_s := started_s + (row.arrival_us - now_us) / SECOND_US - time.monotonic()) > 0:
            if is_over():
                return
            time.sleep(min(left_s, _PAUSE_S))
        if is_over():
            return
        yield _line(row, None)


def _line(row: DrawnRow, timestamp_ms: int | None) -> Line:
    return Line(_encode(row.fields), None if row.key is None else row.key.encode(), timestamp_ms)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": ")).encode()


def _read_examples(path: Path) -> list[dict[str, Any]]:
    try:
        rows = [json.loads(line) for line in read_file_bytes(path, RESULTS_BYTES_MAX).splitlines() if line.strip()]
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}", code="TG-SETTING-FLAG", where="--examples") from None
    except (ValueError, RecursionError):
        rows = [None]
    if not rows or not all(isinstance(row, dict) for row in rows):
        what = f"{path} holds no JSON objects, one a line"
        raise SettingError(what, code="TG-SETTING-FLAG", where="--examples", fix="write one event a line", example='{"speed": 50}')
    return rows
