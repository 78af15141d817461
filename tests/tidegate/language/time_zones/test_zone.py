"""The clocks of places against Python's, and the database that they are read from."""

from __future__ import annotations

import pickle
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks import CHANGES, DAY, HOUR, SECOND, instant_of, naive_zone, reading_of, us_of, zone

from tidegate.language.time_zones import database
from tidegate.language.time_zones.database import WINDOWS_NAMES, database_version, find_zone, suggest_zone
from tidegate.language.time_zones.tzif import read_changes
from tidegate.language.time_zones.zone import Zone

NAMES = sorted({name for name, _, _ in CHANGES})
FIRST, LAST = us_of("0001-01-03T00:00:00"), us_of("9999-12-29T00:00:00")


@given(st.sampled_from(NAMES), st.lists(st.integers(FIRST, LAST) | st.integers(0, us_of("2100-01-01")), min_size=1))
def test_a_clock_shows_what_pythons_shows(name: str, instants: list[int]) -> None:
    """At any instant of the years 1 to 9999."""
    assert zone(name).clock.readings(np.array(instants)).tolist() == [reading_of(name, at) for at in instants]


@given(st.sampled_from(CHANGES), st.lists(st.integers(-DAY * 2, DAY * 2), min_size=1))
def test_a_reading_means_the_instant_that_python_means(change: tuple[str, str, int], distances: list[int]) -> None:
    """Near changes: the first of two instants; of a skipped reading one after the change."""
    name, day, _ = change
    readings = [us_of(day) + distance for distance in distances]
    assert zone(name).clock.instants(np.array(readings)).tolist() == [instant_of(name, reading) for reading in readings]


@pytest.mark.deep
@pytest.mark.parametrize("name", sorted(database._names().values()))
def test_every_zone_is_read_as_python_reads_it(name: str) -> None:
    """Each change of the first centuries and of the last years, a second before and after it, and instants between."""
    clock, draw = zone(name).clock, random.Random(name)
    changes = [int(change) for change in [*clock.changes_us[:300], *clock.changes_us[-4:]] if FIRST < change < LAST]
    instants = [change + step * SECOND for change in changes for step in (-1, 0, 1)] + [draw.randrange(FIRST, LAST) for _ in range(200)]
    assert clock.readings(np.array(instants)).tolist() == [reading_of(name, at) for at in instants]


def test_only_the_package_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the time zone of the machine nor a database elsewhere has an influence."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("PYTHONTZPATH", str(tmp_path))
    find_zone.cache_clear()
    assert zone("Europe/Berlin").data == zone("europe/BERLIN").data
    assert zone("Europe/Berlin").name == "Europe/Berlin"
    version, _, package = database_version().partition(" (tzdata ")
    assert version[:4] == package[:4]


def test_a_zone_carries_its_data() -> None:
    """A worker computes with what the driver has read, whatever is installed there."""
    berlin = zone("Europe/Berlin")
    copy = pickle.loads(pickle.dumps(berlin))
    assert (copy, copy.digest) == (berlin, berlin.digest)
    other = Zone("Europe/Berlin", zone("Europe/London").data)
    assert other != berlin
    assert other.clock.readings(np.array([0])).tolist() == [HOUR]
    assert other.clock.readings(np.array([us_of("2024-01-01")])).tolist() == [us_of("2024-01-01")]


def test_the_digest_is_of_what_the_clock_shows() -> None:
    """Zones whose clocks are one have one digest, however their files are written; another offset is another digest."""
    berlin = zone("Europe/Berlin")
    renamed = Zone("Europe/Berlin", berlin.data.replace(b"CEST", b"XEST"))
    assert renamed.data != berlin.data
    assert renamed.digest == berlin.digest
    assert zone("Europe/London").digest != berlin.digest


def file_of(rule: str, changes: tuple[int, ...] = (), types: tuple[int, ...] = (), offsets: tuple[int, ...] = (0,)) -> bytes:
    """A TZif file without its first block's data."""
    infos = b"".join(struct.pack(">lBB", offset, 0, 0) for offset in offsets)
    header = struct.pack(">4s1s15x6l", b"TZif", b"2", 0, 0, 0, len(changes), len(offsets), 1)
    body = b"".join(struct.pack(">q", change) for change in changes) + bytes(types) + infos + b"\0"
    empty = struct.pack(">4s1s15x6l", b"TZif", b"2", 0, 0, 0, 0, 1, 1) + struct.pack(">lBB", 0, 0, 0) + b"\0"
    return empty + header + body + f"\n{rule}\n".encode()


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        ("XXX-1YYY,M3.5.0,M10.5.0/3", "1970-03-29T01:00:00", "1970-10-25T01:00:00"),
        ("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "1970-04-04T15:00:00", "1970-10-03T15:30:00"),
        ("XXX3YYY,J60/0,J300/-1:30", "1970-03-01T03:00:00", "1970-10-27T00:30:00"),
        ("XXX0YYY,59/0,300/25", "1970-03-01T00:00:00", "1970-10-29T00:00:00"),
    ],
)
def test_rules_are_read_in_all_their_forms(rule: str, first: str, second: str) -> None:
    """Days of a month, of a year with and without the 29th of February; hours below 0 and above 24. Python agrees."""
    data = file_of(rule)
    changes = read_changes(data).instants_s[:2] * SECOND
    assert changes.tolist() == [us_of(first), us_of(second)]


def test_a_change_of_the_name_alone_is_none() -> None:
    """Nor is one of the mark of summer time."""
    changes = read_changes(file_of("XXX-1", (100, 200, 300), (1, 2, 1), (0, 3600, 3600)))
    assert (changes.instants_s.tolist(), changes.offsets_s.tolist()) == ([100], [0, 3600])


def test_a_zone_without_changes() -> None:
    """UTC, and others whose clock is never changed."""
    utc = zone("Etc/UTC").clock
    assert (utc.changes_us.tolist(), utc.offsets_us.tolist()) == ([], [0])
    assert zone("Etc/GMT-14").clock.readings(np.array([0])).tolist() == [14 * HOUR]
    assert naive_zone("Etc/GMT-14").utcoffset(None) is not None


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("berlin", "did you mean 'Europe/Berlin'?"),
        ("New York", "did you mean 'America/New_York'?"),
        ("lord howe", "did you mean 'Australia/Lord_Howe'?"),
        ("W. Europe Standard Time", "write 'Europe/Berlin', which is what Windows calls so"),
        ("eastern standard time", "write 'America/New_York', which is what Windows calls so"),
        ("xyz", "write a name of the tz database: a continent and a city"),
    ],
)
def test_an_unknown_zone_has_a_near_one(name: str, fix: str) -> None:
    """By spelling, by the city alone, by the name that Windows has."""
    assert find_zone(name) is None
    assert suggest_zone(name) == fix


def test_the_names_of_windows_stand_for_zones_that_there_are() -> None:
    """None of them is a zone itself."""
    assert all(find_zone(name) is None and find_zone(meant) is not None for name, meant in WINDOWS_NAMES.items())
