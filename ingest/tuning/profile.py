"""
A profile: the disorder of an input, with the names of its fields; as a file in TOML that may be kept, changed by hand and shared.

Law: a profile that was written is read as it was, shares to seven digits. A file that is no profile is refused, with the place.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ordering.errors import SettingError, TickRangeError
from ordering.ticks import DURATION_US_MAX, format_duration, parse_duration
from ordering.tuning.disorder import Disorder, KeyDisorder
from ordering.tuning.quantiles import Quantiles
from tidegate.basics.bounded_files import read_file_text
from tidegate.basics.visible_text import quote_toml
from tidegate.language.expressions.syntax.plain_path import plain_path

FIELD_OF_TIME, FIELD_OF_KEY = "at", "key"
_VERSION = 1
_SHARES = ("unreadable", "duplicates", "ties", "out_of_order")
_DURATIONS = ("gaps", "lateness", "behind", "repeated_after")
_COUNT_MAX = 10**9


@dataclass(frozen=True, slots=True)
class Profile:
    """A disorder with names."""

    name: str
    # The field of the event time, as ``timestamp_by`` names it.
    timestamp_by: str
    # The field of the key; None: the input has no substreams.
    over: str | None
    disorder: Disorder

    @classmethod
    def of(cls, name: str, timestamp_by: str, over: str | None, disorder: Disorder) -> Profile:
        """Return a profile; an event time or a key that is no plain field gets a field of its own."""
        time = timestamp_by if plain_path(timestamp_by) is not None else FIELD_OF_TIME
        key = None if over is None else over if plain_path(over) is not None else FIELD_OF_KEY
        return cls(name, time, key, disorder)

    def without_names(self) -> Profile:
        """Return the profile with its keys called ``key1``, ``key2`` and so on, by their numbers of events."""
        keys = [replace(key, name=f"key{number}" if key.name else "") for number, key in enumerate(self.disorder.keys, 1)]
        return replace(self, disorder=replace(self.disorder, keys=tuple(keys)))


def write_profile(profile: Profile) -> str:
    """Return a profile as TOML."""
    disorder = profile.disorder
    over = [] if profile.over is None else [f"over = {quote_toml(profile.over)}"]
    lines = [
        f"# The disorder of {json.dumps(profile.name)[1:-1]}, by tidegate profile. Events with the same disorder: tidegate produce --like",
        f"version = {_VERSION}",
        f"name = {quote_toml(profile.name)}",
        f"timestamp_by = {quote_toml(profile.timestamp_by)}",
        *over,
        f"records = {disorder.records}",
        f"partitions = {disorder.partitions}",
        f'resolution = "{format_duration(disorder.resolution_us)}"  # event times are whole multiples of it',
        "",
        "# Shares: of records that are no events, or repeat an earlier one; of events at the time of another, or below the newest.",
        *(f"{name} = {_share(getattr(disorder, name))}" for name in _SHARES),
    ]
    lines += [
        "",
        "# Durations that these shares do not exceed: silence between arrivals; arrival less event time; how far below the newest one",
        "# events out of order are; when repetitions come. produce --like keeps all but behind, which follows from the others.",
    ]
    for name in _DURATIONS:
        lines += ["", f"[{name}]", *_quantiles(getattr(disorder, name))]
    for key in disorder.keys:
        what = [f"name = {quote_toml(key.name)}"] if key.name else [f"keys = {key.keys}  # all others, with as many events each"]
        lines += ["", "[[keys]]", *what, f"share = {_share(key.share)}", *_quantiles(key.lateness)]
    return "\n".join(lines) + "\n"


def read_profile(path: Path) -> Profile:
    """Return the profile in a file. Raises SettingError (TG-PROFILE-FILE): it cannot be read, or is none."""
    try:
        table = tomllib.loads(read_file_text(path))
    except OSError as error:
        raise _error(path, "", f"it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise _error(path, "", f"it is no TOML: {error}") from None
    return _Reader(path, table).profile()


def _share(share: float) -> str:
    return f"{share:.7f}".rstrip("0") + "0" * (f"{share:.7f}".rstrip("0")[-1] == ".")


def _quantiles(quantiles: Quantiles) -> list[str]:
    shares = ", ".join(_share(share) for share in quantiles.shares.tolist())
    durations = ", ".join(f'"{format_duration(us)}"' for us in quantiles.values_us.tolist())
    return [f"shares = [{shares}]", f"durations = [{durations}]"]


def _error(path: Path, where: str, what: str) -> SettingError:
    fix, example = "measure it anew, or correct it", f"tidegate profile INPUT --write {path.name}"
    message = f"{path.name} is no profile: {what}"
    return SettingError(message, code="TG-PROFILE-FILE", where=f"{path}{': ' if where else ''}{where}", fix=fix, example=example)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads a table with its errors."""

    path: Path
    table: Mapping[str, Any]

    def profile(self) -> Profile:
        if self.table.get("version") != _VERSION:
            raise _error(self.path, "version", f"its version is {self.table.get('version')!r}, not {_VERSION}")
        over = self.field("over") if "over" in self.table else None
        measured: dict[str, Any] = {name: self.share(self.table, name) for name in _SHARES}
        durations = {name: self.quantiles(self.sub_table(name), name) for name in _DURATIONS}
        if min(durations["gaps"].least_us, durations["repeated_after"].least_us) < 0:
            raise _error(self.path, "gaps.durations", "silence is never below 0s, nor do repetitions come before")
        disorder = Disorder(
            records=self.count(self.table, "records"),
            partitions=self.count(self.table, "partitions"),
            resolution_us=max(self.duration(self.table.get("resolution"), "resolution"), 1),
            **(measured | durations),
            keys=self.keys() if over is not None else (),
        )
        if disorder.unreadable + disorder.duplicates > 1:
            raise _error(self.path, "duplicates", "more than all records are no events or repetitions")
        return Profile(self.text(self.table, "name"), self.field("timestamp_by"), over, disorder)

    def sub_table(self, name: str) -> Mapping[str, Any]:
        found = self.table.get(name)
        if not isinstance(found, dict):
            raise _error(self.path, name, f"it has no table [{name}]")
        return found

    def keys(self) -> tuple[KeyDisorder, ...]:
        found = self.table.get("keys")
        if not isinstance(found, list) or not found or not all(isinstance(key, dict) for key in found):
            raise _error(self.path, "keys", "it names a key, and has no tables [[keys]]")
        keys = []
        for key in found:
            name = self.text(key, "name") if "name" in key else ""
            keys.append(KeyDisorder(name, self.share(key, "share"), self.quantiles(key, "keys"), 1 if name else self.count(key, "keys")))
        names = [key.name for key in keys]
        if len(set(names)) < len(names):
            raise _error(self.path, "keys", "two keys have one name, or two tables have none")
        if sum(key.share for key in keys) <= 0:
            raise _error(self.path, "keys.share", "no key has events")
        return tuple(keys)

    def quantiles(self, table: Mapping[str, Any], where: str) -> Quantiles:
        shares, durations = table.get("shares"), table.get("durations")
        if not isinstance(shares, list) or not isinstance(durations, list) or not shares or len(shares) != len(durations):
            raise _error(self.path, where, "shares and durations are two lists of one length")
        places = np.array([self.share({"": share}, "", f"{where}.shares") for share in shares])
        values_us = np.array([self.duration(text, f"{where}.durations") for text in durations], dtype=np.int64)
        if np.any(np.diff(places) < 0) or np.any(np.diff(values_us) < 0):
            raise _error(self.path, where, "shares and durations rise")
        return Quantiles(places, values_us)

    def field(self, name: str) -> str:
        text = self.text(self.table, name)
        if plain_path(text) is None:
            raise _error(self.path, name, f"{text!r} is no field")
        return text

    def text(self, table: Mapping[str, Any], name: str) -> str:
        found = table.get(name)
        if not isinstance(found, str) or not found:
            raise _error(self.path, name, f"{name} is a text")
        return found

    def count(self, table: Mapping[str, Any], name: str) -> int:
        found = table.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= _COUNT_MAX:
            raise _error(self.path, name, f"{name} is a whole number from 1 to {_COUNT_MAX:,}")
        return found

    def share(self, table: Mapping[str, Any], name: str, where: str = "") -> float:
        found = table.get(name)
        if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found <= 1:
            raise _error(self.path, where or name, f"{found!r} is no share from 0 to 1")
        return float(found)

    def duration(self, text: Any, where: str) -> int:
        try:
            if not isinstance(text, str):
                raise TickRangeError(f"{text!r} is no duration in quotes")
            us = parse_duration(text.removeprefix("-"))
        except TickRangeError as error:
            raise _error(self.path, where, error.what) from None
        if us > DURATION_US_MAX:
            raise _error(self.path, where, f"{text} is too long")
        return -us if text.startswith("-") else us
