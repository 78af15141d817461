"""A query's own pace: as it is set, as it is shown, and what counts for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.bucket_oracle import Event, Question
from support.bucket_topics import Line, decoded_range
from support.saved_buckets import Plan

from ordering.errors import ProtocolError, SettingError
from ordering.protocol.frontier import Pace
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.wire import Flag
from ordering.ticks import MINUTE_US, NEVER, SECOND_US
from query.__main__ import plan as show_plan
from query.buckets.bucket import Bucket, BucketConfig, SourceTopic
from query.buckets.merged import MergedBucket
from tidegate.platform.settings.load import load

TABLES = """
[inputs.rides]
topic = "rides"
[outputs.slow]
topic = "slow"
cti_every_events = 1000
cti_every = "1m"
cti_delay = "5s"
[outputs.plain]
topic = "plain"
"""
ROSTER = Roster(1, 1, Spread.ONE, False)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with a paced output."""
    file = tmp_path / "tidegate.toml"
    file.write_text(TABLES)
    return file


def test_a_pace_is_set_with_the_output_that_the_query_writes(config: Path) -> None:
    """Settings of [outputs.NAME] override those of the input; without them each CTI of the input is heeded."""
    settings = load(config)
    assert settings.output("slow").pace() == Pace(1000, MINUTE_US, 5 * SECOND_US)
    assert settings.output("plain").pace() == Pace()


def test_a_pace_that_means_nothing_is_refused(config: Path) -> None:
    """Nothing is started; the setting is named."""
    config.write_text(TABLES.replace('"1m"', '"0s"'))
    with pytest.raises(SettingError) as raised:
        load(config)
    assert "cti_every must be positive" in str(raised.value)


@pytest.mark.parametrize(("output", "pace"), [("slow", "every 1000 events or 1m, 5s behind"), ("plain", "each CTI")])
def test_the_plan_shows_the_pace(config: Path, capsys: pytest.CaptureFixture[str], output: str, pace: str) -> None:
    """A line of ``tidegate plan``."""
    script = config.with_name("q.sql")
    script.write_text("SELECT COUNT(*) AS n FROM rides GROUP BY TumblingWindow(second, 1)")
    show_plan(script, output, config=config)
    assert f"pace: {pace}" in capsys.readouterr().out.splitlines()


def paced(pace: Pace) -> Bucket:
    """A bucket that merges one partition."""
    config = BucketConfig([SourceTopic("arrivals", 1, {0: 0})], 0, ROSTER, pace=pace)
    return MergedBucket(Plan(Question(False), None, 1).bucket()._program, config)


def cti(offset: int, c: int, n: int) -> Line:
    """A CTI of the one channel."""
    return offset, Cti(0, 0, c, n, 0, 0, c, c, ROSTER, Cause.EVENT)


def event(offset: int, seq: int) -> Line:
    """An event of the one channel, at ten ticks a number."""
    return offset, Event(0, seq, 10 * seq, seq, b"", b'{"w":1}')


def test_end_edges_do_not_count() -> None:
    """Level 2: three events, one of them the end of a span, are two; the third that counts lets the next CTI pass."""
    bucket = paced(Pace(every_events=3))
    lines = [event(0, 0), event(1, 1), event(2, 2), cti(3, 21, 3)]
    decoded = decoded_range(lines)
    flags = pa.array([Flag.EDGE_START, Flag.EDGE_END, 0], pa.uint16())
    events = decoded.events.set_column(decoded.events.schema.get_field_index("flags"), "flags", flags)
    bucket.accept_records(0, replace(decoded, events=events))
    assert (bucket.frontier_us, bucket.totals["withheld_ctis"]) == (NEVER, 1)
    bucket.accept_records(0, decoded_range([event(4, 3), cti(5, 31, 4)]))
    assert (bucket.frontier_us, bucket.totals["withheld_ctis"]) == (31, 1)
    assert [len(released) for released in bucket.settle()] == [4]


def test_a_newer_state_is_refused() -> None:
    """A bucket saved by a later version is not guessed at."""
    bucket = paced(Pace())
    head = bucket.save().head
    newer = json.dumps({**json.loads(head), "version": 99}).encode()
    with pytest.raises(ProtocolError) as raised:
        bucket.restore(newer, {})
    assert "version 99" in str(raised.value)
