"""
``tidegate profile`` and ``tidegate produce --like``: what is produced has the disorder of the profile, within the errors that
``ordering/tuning/drawn_events.py`` states. What is measured is what a loop over the records counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from support.chance import dice_of
from typer.testing import CliRunner, Result

from ingest.commands.like import START_US, Likeness, history_lines, live_lines
from ingest.commands.profile import profile as profile_command
from ingest.commands.raw_topic import produce
from ingest.tuning.profile import Profile, read_profile, write_profile
from ingest.tuning.profile_words import draw_profile
from ordering.errors import SettingError
from ordering.ticks import MILLISECOND_US, SECOND_US, format_tick, parse_tick
from ordering.tuning.disorder import Disorder, measure
from ordering.tuning.drawn_events import draw_like
from ordering.tuning.quantiles import Quantiles
from ordering.tuning.recording import Recording
from tidegate.platform.observe.console import report_errors
from tidegate.platform.observe.drawing import render
from tidegate.testing import run_query

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command("profile")(report_errors(profile_command))
APP.command("produce")(report_errors(produce))
COUNT = 5_000


def ask(*arguments: str | Path) -> Result:
    """Run one of the two commands."""
    return CliRunner().invoke(APP, [str(argument) for argument in arguments])


@dataclass(frozen=True)
class Shape:
    """How the events of a log are drawn."""

    keys: int
    unit_us: int
    is_smooth: bool
    repeats: float
    partitions: int = 1


SHAPES = {
    "independent": Shape(12, 1, False, 0.03, 3),
    "whole seconds": Shape(20, SECOND_US, False, 0.02),
    "slowly changing": Shape(5, MILLISECOND_US, True, 0.0),
    "no keys": Shape(0, 1, True, 0.05),
    "no keys, several partitions": Shape(0, MILLISECOND_US, False, 0.01, 4),
}


def drawn_rows(shape: Shape, name: str) -> list[dict[str, Any]]:
    """Return rows of a log: bursts and silences, keys of different sizes and lateness, repetitions, some without a time."""
    dice, now_us, rows, drift = dice_of(name), START_US, [], 0.0
    for number in range(COUNT):
        now_us += dice.choice((0, 0, 300_000, dice.randrange(2 * SECOND_US))) if number % 400 else 90 * SECOND_US
        key = int(abs(dice.gauss(0, shape.keys / 2))) % shape.keys if shape.keys else 0
        drift = 0.98 * drift + 0.2 * dice.gauss(0, 1)
        late_us = abs(drift) * 4e6 if shape.is_smooth else dice.expovariate(1 / (2e6 * (1 + key % 3))) + 60e6 * (dice.random() < 0.02)
        at_us = (now_us - int(late_us)) // shape.unit_us * shape.unit_us
        row = {
            "at": format_tick(at_us),
            "car": f"c{key}",
            "lane": dice.randrange(shape.partitions),
            "n": number,
            "got": format_tick(now_us),
        }
        if dice.random() < shape.repeats and rows:
            row = {**dice.choice(rows[-20:]), "got": format_tick(now_us)}
        rows.append(row if dice.random() > 0.01 else row | {"at": None})
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as NDJSON; return the file."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def worst_share(asked: Quantiles, durations_us: Any, step_us: int) -> float:
    """Return how far from its share the worst quantile lies among durations that may be off by half a step."""
    ordered, half_us = np.sort(durations_us), step_us // 2
    low = np.searchsorted(ordered, asked.values_us - half_us, "left") / len(ordered) - asked.shares
    high = asked.shares - np.searchsorted(ordered, asked.values_us + half_us, "right") / len(ordered)
    return float(max(low.max(), high.max(), 0.0))


@pytest.fixture(scope="module", params=SHAPES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shape, Path, Path]:
    """A shape, a file of its rows, and their profile as the command writes it."""
    folder, shape = tmp_path_factory.mktemp("profile"), SHAPES[request.param]
    file, profile = write_rows(folder / "cars.ndjson", drawn_rows(shape, request.param)), folder / "cars.toml"
    over = ["--over", "car"] if shape.keys else []
    told = ask("profile", file, "--timestamp-by", "at", *over, "--arrival", "got", "--partition", "lane", "--write", profile)
    assert told.exit_code == 0, told.output
    return shape, file, profile


@pytest.mark.parametrize("count", [COUNT, 3 * COUNT])
def test_what_is_drawn_has_the_disorder_that_was_asked_for(case: tuple[Shape, Path, Path], count: int) -> None:
    """The law of drawn events: shares, and quantiles of lateness, also by key, of silence and of repetitions, within stated errors."""
    asked = read_profile(case[2]).disorder
    drawn = draw_like(asked, count, seed=7)
    key = drawn.key if asked.keys else None
    recording = Recording.of(drawn.partition, drawn.arrival_us + START_US, drawn.event_us + START_US, drawn.is_event, key)
    number = drawn.number if recording.order is None else drawn.number[recording.order]
    found = measure(recording, number, drawn.key_names if asked.keys else ())
    assert (found.records, found.resolution_us, found.partitions) == (count, asked.resolution_us, asked.partitions)
    for name in ("unreadable", "duplicates", "ties"):
        assert getattr(found, name) == pytest.approx(getattr(asked, name), abs=0.01), name
    assert found.out_of_order == pytest.approx(asked.out_of_order, abs=0.03)
    first = np.unique(drawn.number, return_index=True)[1]
    first = first[drawn.is_event[first]]
    late_us = (drawn.arrival_us - drawn.event_us)[first]
    assert worst_share(asked.lateness, late_us, asked.resolution_us) <= 0.02
    assert worst_share(asked.gaps, np.diff(drawn.arrival_us), 1) <= 0.02
    for each in asked.keys:
        if each.name:
            own_us = late_us[drawn.key[first] == drawn.key_names.index(each.name)]
            assert len(own_us) / len(first) == pytest.approx(each.share, abs=0.01)
            assert worst_share(each.lateness, own_us, asked.resolution_us) <= 0.05 + 10 / len(own_us)
    assert late_us.min() >= asked.lateness.least_us - asked.resolution_us
    if asked.duplicates:
        assert found.repeated_after.value_us(0.5) == pytest.approx(asked.repeated_after.value_us(0.5), abs=2 * SECOND_US)


def test_the_profile_is_what_a_loop_counts(case: tuple[Shape, Path, Path]) -> None:
    """Shares, the extremes and the middle, counted once more, record by record."""
    shape, file, path = case
    rows, found = [json.loads(line) for line in file.read_text().splitlines()], read_profile(path).disorder
    seen, times, newest = set[tuple[Any, ...]](), set[tuple[Any, int]](), dict[Any, int]()
    late_us, repeated, tied, behind_us = list[int](), 0, 0, list[int]()
    for row in rows:
        if row["at"] is None:
            continue
        identity = (row["at"], row["car"], row["n"])
        if identity in seen:
            repeated += 1
            continue
        seen.add(identity)
        at_us, timeline = parse_tick(row["at"]), (row["lane"], row["car"] if shape.keys else None)
        late_us.append(parse_tick(row["got"]) - at_us)
        tied += (timeline, at_us) in times
        times.add((timeline, at_us))
        if at_us < newest.get(timeline, at_us):
            behind_us.append(newest[timeline] - at_us)
        newest[timeline] = max(newest.get(timeline, at_us), at_us)
    assert found.unreadable == pytest.approx(sum(row["at"] is None for row in rows) / COUNT, abs=1e-6)
    assert found.duplicates == pytest.approx(repeated / COUNT, abs=1e-6)
    assert found.ties == pytest.approx(tied / len(late_us), abs=1e-6)
    assert found.out_of_order == pytest.approx(len(behind_us) / len(late_us), abs=1e-6)
    assert (found.lateness.least_us, found.lateness.largest_us) == (min(late_us), max(late_us))
    assert found.behind.largest_us == max(behind_us)
    assert sum(key.share for key in found.keys) == pytest.approx(1.0 if shape.keys else 0.0, abs=1e-5)


def test_commands_produce_what_was_profiled(case: tuple[Shape, Path, Path], tmp_path: Path) -> None:
    """From a file to a profile to a file: the same seed gives the same bytes, and the table and JSON say the same of both."""
    shape, _, path = case
    first, again, other = (tmp_path / f"{name}.ndjson" for name in ("first", "again", "other"))
    for target, seed in ((first, "1"), (again, "1"), (other, "2")):
        told = ask("produce", "--like", path, "--count", "2000", "--seed", seed, "--output", target)
        assert told.exit_code == 0, told.output
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()
    over = ["--over", "car"] if shape.keys else []
    told = ask("profile", first, "--timestamp-by", "at", *over, "--format", "json")
    assert told.exit_code == 0, told.output
    found, asked = json.loads(told.stdout), read_profile(path).disorder
    assert (found["records"], found["resolution_us"]) == (2000, asked.resolution_us)
    assert found["out_of_order"] == pytest.approx(asked.out_of_order, abs=0.03)
    assert found["lateness_us"]["p50"] == pytest.approx(asked.lateness.value_us(0.5), abs=asked.resolution_us + 100_000)
    table = ask("profile", first, "--timestamp-by", "at", *over)
    assert "of the events are out of order" in table.stdout


def test_a_profile_is_read_as_it_was_written(case: tuple[Shape, Path, Path], tmp_path: Path) -> None:
    """Written again, it is the same file; its picture is markup of no name."""
    read = read_profile(case[2])
    assert write_profile(read) == case[2].read_text()
    svg = render(draw_profile(Profile.of("<b>", read.timestamp_by, read.over, read.disorder)), ".svg").decode()
    assert "&lt;b&gt;" in svg
    assert "silence between arrivals" in svg
    hidden = read.without_names().disorder.keys
    assert [key.name for key in hidden if key.name] == [f"key{number}" for number in range(1, 1 + sum(key.keys == 1 for key in hidden))]


def test_a_profile_with_keys_of_any_script_is_read_as_it_was_written(case: tuple[Shape, Path, Path], tmp_path: Path) -> None:
    """JSON escapes characters beyond the first 65,536 by halves, which TOML does not take."""
    read = read_profile(case[2])
    keys = tuple(replace(key, name=f"{key.name}\U0001f600\x7f\u00e9" if key.name else "") for key in read.disorder.keys)
    named = Profile.of("\U0001f600", read.timestamp_by, read.over, replace(read.disorder, keys=keys))
    (tmp_path / "named.toml").write_text(write_profile(named), "utf-8")
    assert [key.name for key in read_profile(tmp_path / "named.toml").disorder.keys] == [key.name for key in keys]


WRONG = {
    "no TOML": ("version = 1", "version", ""),
    "another version": ("version = 1", "version = 9", "version"),
    "a share above one": ("unreadable = ", "unreadable = 7", "unreadable"),
    "a text for a count": ("records = ", 'records = "x" #', "records"),
    "falling durations": ('durations = ["', 'durations = ["9999d", "', "gaps"),
    "no duration": ('durations = ["', 'durations = ["soon', "gaps.durations"),
    "no field": ('timestamp_by = "at"', 'timestamp_by = "DATEADD(x)"', "timestamp_by"),
    "no keys": ("[[keys]]", "[[others]]", "keys"),
    "negative silence": ('durations = ["', 'durations = ["-1s", "', "gaps"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_profile_is_refused_with_the_place(name: str, tmp_path: Path) -> None:
    """Each with its code; nothing is written."""
    rows = drawn_rows(SHAPES["independent"], "wrong profiles")[:300]
    file, profile = write_rows(tmp_path / "cars.ndjson", rows), tmp_path / "cars.toml"
    columns = ["--timestamp-by", "at", "--over", "car", "--arrival", "got", "--partition", "lane"]
    assert ask("profile", file, *columns, "--write", profile).exit_code == 0
    old, new, where = WRONG[name]
    assert old in profile.read_text()
    profile.write_text(profile.read_text().replace(old, new))
    with pytest.raises(SettingError) as caught:
        read_profile(profile)
    assert (caught.value.code, where in caught.value.where) == ("TG-PROFILE-FILE", True)
    told = ask("produce", "--like", profile, "--output", tmp_path / "none.ndjson")
    assert told.exit_code == 2
    assert not (tmp_path / "none.ndjson").exists()


def test_records_for_topics_come_now_or_as_they_arrive(case: tuple[Shape, Path, Path]) -> None:
    """History ends now, to a step of event times; live records come in real time, until they are asked to stop."""
    shape, _, path = case
    now_us = parse_tick("2026-06-01T12:00:00.5Z")
    likeness = Likeness(read_profile(path), 200, 1_000.0, 0, [{"speed": 50, "car": "none"}, {"speed": 70}])
    lines = list(history_lines(likeness, now_us))
    stamps_ms = [line.timestamp_ms or 0 for line in lines]
    assert stamps_ms == sorted(stamps_ms)
    assert now_us - shape.unit_us - MILLISECOND_US <= stamps_ms[-1] * MILLISECOND_US <= now_us
    fields = [json.loads(line.value) for line in lines]
    assert {row["speed"] for row in fields} == {50, 70}
    if shape.keys:
        assert [row["car"].encode() for row in fields] == [line.key for line in lines]
    live = list(live_lines(likeness, now_us, lambda: False))
    assert [line.key for line in live] == [line.key for line in lines]
    assert not any(line.timestamp_ms for line in live)
    assert not list(live_lines(likeness, now_us, lambda: True))


def test_flags_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """Each says what is missing."""
    for flags in (
        ["--count", "5", "a.ndjson", "t"],
        ["--like", "no.toml", "--sample", "t"],
        [],
        ["--like", "no.toml", "--output", "x", "t"],
    ):
        told = ask("produce", *flags)
        assert told.exit_code == 2
        assert "TG-" in told.stderr
    told = ask("profile", tmp_path / "none", "--write", tmp_path / "no" / "folder.toml")
    assert "there is no folder" in told.stderr


def test_of_few_events_there_is_a_profile_too() -> None:
    """One event, and none."""
    for count in (0, 1, 2):
        column = np.arange(count, dtype=np.int64) * SECOND_US + START_US
        found = measure(Recording.of(np.zeros(count, dtype=np.int64), column, column, np.ones(count, dtype=np.bool_)), np.arange(count))
        assert isinstance(found, Disorder)
        assert found.lateness.largest_us == 0
        assert len(draw_like(found, 10)) == 10


def test_rows_for_tests_have_the_disorder_of_the_profile(case: tuple[Shape, Path, Path], rows_like: Any) -> None:
    """The fixture: rows for ``run_query``, whose policies judge them as late as they are."""
    path = case[2]
    rows = rows_like(path, 400, seed=3, examples=[{"v": 1}])
    assert rows == rows_like(path, 400, seed=3, examples=[{"v": 1}])
    run = run_query(
        "SELECT COUNT(v) AS n FROM cars TIMESTAMP BY at GROUP BY TumblingWindow(hour, 1)", {"cars": rows}, {"late": "7d"}, cuts=None
    )
    fates = [fate.kind for fate in run.fates]
    assert sum(row["n"] for row in run.rows) == len(fates) - fates.count("bad")
    assert fates.count("bad") == round(400 * read_profile(path).disorder.unreadable)
