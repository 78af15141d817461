"""
Passing over offsets: a batch whose bytes are broken on the broker's disk, records deleted before they were read, and attempts that died
behind the offset. What comes out equals the oracle's story of the other records.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from support.stack.drawn_logs import Raw, draw, expected, logs_of
from support.stack.jobs import Job, Workspace, error_code, settings_of, workspace
from support.stack.keyed_input import POLICIES, TABLES
from support.stack.servers import Stack
from support.stack.topics import Channel, Event, check_promises, create, fresh, header, produce, read_ordered, records
from support.stack.verifying import run_verify, stage

from ordering.errors import RefusedError
from ordering.protocol.facts import FACTS_HEADER_NAME, Fact, FactKind, decode_facts
from tidegate.basics.native_parts import NATIVE_SWITCH
from tidegate.platform.kafka import ranges
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.observe.progress_store import ProgressPublisher
from tidegate.platform.settings.load import load
from tidegate.platform.stack.embedded import EmbeddedStack

pytestmark = pytest.mark.integration

# A record batch begins with its base offset and length; its records follow 61 bytes later.
_BATCH_START, _BATCH_HEADER_BYTES = struct.Struct(">qi"), 61


@pytest.fixture(scope="module", name="stack")
def _stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """These tests break bytes on the broker's disk."""
    with EmbeddedStack(tmp_path_factory.mktemp("broken"), heap="512m") as running:
        yield running
        running.stop(wipe=True)


def produce_batch(stack: Stack, topic: str, raws: Sequence[Raw], compression: str = "gzip") -> None:
    """Write *raws* as one batch of their partition."""
    producer = Producer({"bootstrap.servers": stack.bootstrap, "compression.type": compression, "linger.ms": 60_000})
    for raw in raws:
        producer.produce(topic, raw.value, raw.key, raw.partition, timestamp=raw.stamp_ms)
    assert producer.flush(30) == 0


def break_batch(folder: Path, topic: str, partition: int, base_offset: int) -> None:
    """Overwrite the records of a batch where the broker keeps them."""
    (segment,) = folder.rglob(f"{topic}-{partition}/00000000000000000000.log")
    with segment.open("r+b") as log:
        while True:
            place = log.tell()
            offset, length = _BATCH_START.unpack(log.read(_BATCH_START.size))
            if offset == base_offset:
                break
            log.seek(length, 1)
        log.seek(place + _BATCH_HEADER_BYTES)
        log.write(b"\xff" * 40)


def without(logs: list[list[Raw]], partition: int, start: int, end: int) -> dict[Channel, list[Event]]:
    """What comes out if some records had never been in the log."""
    # The story leaves out what is stamped far ahead.
    logs[partition][start:end] = [replace(raw, reason="arrival_ahead") for raw in logs[partition][start:end]]
    return expected(logs, POLICIES, len(logs), over=True)


def error_of(job: Job) -> dict[str, Any]:
    """The one error that a job ended with, and nothing else."""
    error_code(job)
    (told,) = [json.loads(line)["error"] for line in job.errors.splitlines() if line.startswith('{"error": ')]
    return dict(told)


def carried_facts(stack: Stack, ordered: str) -> set[Fact]:
    """The facts in the CTIs of an ordered topic."""
    values = [value for message in records(stack.bootstrap, ordered) if (value := header(message, FACTS_HEADER_NAME))]
    return {fact for value in values for fact in decode_facts(value)}


def skip(space: Workspace, *arguments: str) -> list[dict[str, Any]]:
    """Call ``tidegate skip``; return what it printed."""
    job = space.start("skip", "events", *arguments)
    assert job.wait() == 0, job.errors
    return job.lines


def skips_that_verify_names(space: Workspace) -> list[str]:
    """Have the ordered topic verified, which must be equal; return what is said about skips."""
    told = stage(run_verify(space, "events"), "events")
    return [note for note in told["notes"] if note.startswith("skipped")]


@pytest.mark.parametrize(
    ("native", "compression"),
    [("auto", "none"), ("off", "gzip"), *(pytest.param(*pair, marks=pytest.mark.deep) for pair in (("auto", "gzip"), ("off", "none")))],
)
def test_a_broken_batch_is_an_error_and_neither_what_stands_before_it_nor_behind_it(
    stack: Stack, native: str, compression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either way to Kafka, compressed or not; it may be the last batch, and be fetched ahead with the records before it."""
    monkeypatch.setenv(NATIVE_SWITCH, native)
    monkeypatch.setattr(ranges, "_RECONNECT_AFTER_S", 1.0)  # librdkafka is silent about a broken batch that is not compressed
    topic = create(stack.bootstrap, fresh("broken"), 1)
    raws = draw(8, 100, 1)
    produce(stack.bootstrap, topic, raws[:40])
    produce_batch(stack, topic, raws[40:60], compression)
    produce(stack.bootstrap, topic, raws[60:80])
    produce_batch(stack, topic, raws[80:], compression)
    for base_offset in (40, 80):
        break_batch(stack.directory, topic, 0, base_offset)  # type: ignore[attr-defined]
    reader = RangeReader({"bootstrap.servers": stack.bootstrap}, topic, 0)
    for start, end in [(0, 40), (60, 80), (10, 20)]:
        assert [offset for piece in reader.read(start, end) for offset in piece.offset.tolist()] == list(range(start, end))
    for start, end, found in [(0, 100, "40"), (45, 50, "45"), (70, 100, "80")]:
        with pytest.raises(RefusedError, match="TG-RECORD-UNREADABLE") as refusal:
            list(reader.read(start, end))
        assert refusal.value.where == f"{topic}-0@{found}"
        assert f"--until {60 if found < '60' else 100} " in refusal.value.example
    reader.close()


def test_a_broken_batch_is_skipped_by_every_replay(stack: Stack, tmp_path: Path) -> None:
    """
    Level 1: equal to a run over a log without it, over kill -9, a lost checkpoint and an emptied journal.

    The error names the batch and the command; until somebody gives it, each start ends there, with nothing written behind.
    """
    raws = draw(5, 4_000, 2)
    logs = logs_of(raws, 2)
    topic = create(stack.bootstrap, fresh("broken"), 2)
    start, end = 1_000, 1_040
    produce(stack.bootstrap, topic, [*logs[0][:start], *logs[1]])
    produce_batch(stack, topic, logs[0][start:end])
    produce(stack.bootstrap, topic, logs[0][end:])
    break_batch(stack.directory, topic, 0, start)  # type: ignore[attr-defined]
    place, ordered = f"{topic}-0@{start}", f"{topic}.ordered"
    with workspace(tmp_path, stack, TABLES.format(topic=topic) + 'idle = "off"\n') as space:
        arguments = "ingest", "events", *settings_of(inputs__events__max_events_per_batch=400)
        for _ in range(2):
            told = error_of(space.start(*arguments, "--until-end"))
            assert (told["code"], told["where"]) == ("TG-RECORD-UNREADABLE", place)
        assert told["example"] == f'tidegate skip INPUT {place} --until {end} --why "unreadable"'
        assert error_code(space.start("skip", "events", place)) == "TG-SETTING-FLAG", "a reason is asked for"
        (asked,) = skip(space, place, "--until", str(end), "--why", "its bytes are broken")
        assert (asked["state"], asked["start"], asked["end"], asked["why"]) == ("asked", start, end, "its bytes are broken")
        job = space.start(*arguments)
        job.until(lambda: job.batches >= 2, "some batches")
        job.kill()
        job = space.start(*arguments)
        total = len(raws) - (end - start)
        job.until(lambda: any(line["events_in"] == total for line in job.lines), "all events")
        job.kill()
        (known,) = skip(space)
        assert (known["state"], known["why"]) == ("in force", "its bytes are broken")
        assert Fact(FactKind.SKIP, start, end) in carried_facts(stack, ordered)
        explained = space.start("explain", "events", f"{topic}-0@{end - 1}", f"{topic}-0@{end}")
        assert explained.wait() == 0
        by_offset = {line["offset"]: line for line in explained.lines}
        assert (by_offset[end - 1]["verdict"], by_offset[end - 1]["skip"]["why"]) == ("skipped", "its bytes are broken")
        assert by_offset[end]["verdict"] != "skipped"
        assert error_code(space.start("skip", "events", place, "--undo")) == "TG-SKIP-PASSED"
        assert skips_that_verify_names(space)[0].startswith(f"skipped: {place} and {end - start - 1} more: its bytes are broken (")
        shutil.rmtree(space.folder / ".tidegate/checkpoints")
        redis.Redis.from_url(stack.redis_url).flushall()
        summary = space.start(*arguments, "--until-end").finish()
        (known,) = skip(space)
        assert (known["state"], known["why"], known["start"], known["end"]) == ("in force", "", start, end)
        assert skips_that_verify_names(space) == [f"skipped: {place} and {end - start - 1} more: why is not known"]
    assert summary["skipped"] == end - start
    assert len(summary["recovery"]["skips"]) == 1
    found = read_ordered(stack.bootstrap, ordered, 2)
    assert found.events == without(logs, 0, start, end)
    check_promises(found, killed=True)


def test_records_deleted_before_they_were_read_become_a_gap_if_the_user_says_so(stack: Stack, tmp_path: Path) -> None:
    """Level 1: equal to a run over a log without them; by default the start refuses with the command that goes on."""
    raws = draw(6, 4_000, 2)
    logs = logs_of(raws, 2)
    topic = create(stack.bootstrap, fresh("deleted"), 2)
    halves = [len(log) // 2 for log in logs]
    produce(stack.bootstrap, topic, [raw for log, half in zip(logs, halves, strict=True) for raw in log[:half]])
    with workspace(tmp_path, stack, TABLES.format(topic=topic) + 'idle = "off"\n') as space:
        job = space.start("ingest", "events")
        job.until(lambda: any(line["events_in"] == sum(halves) for line in job.lines), "the first halves")
        job.stop()
        produce(stack.bootstrap, topic, [raw for log, half in zip(logs, halves, strict=True) for raw in log[half:]])
        start, end = halves[1], halves[1] + 200
        admin = AdminClient({"bootstrap.servers": stack.bootstrap})
        for future in admin.delete_records([TopicPartition(topic, 1, end)]).values():
            future.result(30)
        told = error_of(space.start("ingest", "events", "--until-end"))
        assert told["code"] == "TG-RETENTION"
        assert told["example"].startswith(f"tidegate skip events {topic}-1@{start} --until {end} --why")
        summary = space.start("ingest", "events", "--until-end", *settings_of(inputs__events__on_lost_records="gap")).finish()
        (known,) = skip(space)
        assert (known["state"], known["start"], known["end"], known["by"]) == ("in force", start, end, 'on_lost_records = "gap"')
    assert summary["skipped"] == end - start
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", 2)
    assert found.events == without(logs, 1, start, end)
    check_promises(found)


def _tear(space: Workspace, topic: str, arguments: Sequence[str]) -> int:
    """Kill the job after it has written its first piece, until some of it has come to the brokers; return the offset of an event there."""
    for attempt in range(10):
        marker = space.folder / f"stopped-{attempt}"
        job = space.start(*arguments, TIDEGATE_FAULT_POINT=f"piece written:1:{marker}")
        job.until(marker.exists, "a written piece")
        job.kill()
        # How much of a piece has left the process before its end is chance.
        if events := read_ordered(space.stack.bootstrap, f"{topic}.ordered", 1).all_events():
            return max(event.offset for event in events)
    raise AssertionError("nothing of a piece came to the brokers")


def test_a_skip_behind_what_a_torn_attempt_wrote_takes_effect_and_one_before_it_does_not(stack: Stack, tmp_path: Path) -> None:
    """
    Level 1: the attempt died with a piece of its range written and no CTI above it. Its events stay as they are numbered.

    An offset in that piece was judged: the job stops. Undone, it goes on; an offset behind the piece can be skipped.
    """
    (log,) = logs_of(draw(7, 52_000, 1), 1)
    topic = create(stack.bootstrap, fresh("torn"), 1)
    produce(stack.bootstrap, topic, log)
    with workspace(tmp_path, stack, TABLES.format(topic=topic) + 'idle = "off"\n') as space:
        arguments = "ingest", "events", "--until-end"
        place = f"{topic}-0@{_tear(space, topic, arguments)}"
        skip(space, place, "--why", "a mistake")
        assert error_code(space.start(*arguments)) == "TG-SKIP-PASSED"
        assert error_code(space.start("skip", "events", place, "--why", "again")) == "TG-SKIP-KNOWN"
        assert error_code(space.start("skip", "events", f"{topic}-0@{len(log)}", "--why", "later")) == "TG-SETTING-PLACE"
        assert error_code(space.start("skip", "events", f"{topic}.ordered-0@1", "--why", "late")) == "TG-SKIP-QUERY"
        settings = load(None, {}, env={"TIDEGATE_REDIS__URL": stack.redis_url})
        with ProgressPublisher(settings.redis, f"{topic}.ordered", input="events") as published:
            published.update_job(state="live")
            space.start("status", "events").wait()
            assert error_code(space.start("skip", "events", place, "--undo")) == "TG-SKIP-RUNNING"
        (undone,) = skip(space, place, "--undo")
        assert undone["state"] == "undone"
        skip(space, f"{topic}-0@51000", "--until", "51500", "--why", "they are not wanted")
        summary = space.start(*arguments).finish()
        # These records can be read: only a replay that passes over them gives the same events.
        (note,) = skips_that_verify_names(space)
        assert note.startswith(f"skipped: {topic}-0@51000 and 499 more: they are not wanted (")
    assert summary["skipped"] == 500
    found = read_ordered(stack.bootstrap, f"{topic}.ordered", 1)
    assert found.events == without([log], 0, 51_000, 51_500)
    check_promises(found)
