"""Two ingest jobs, one truth: ``tidegate compare`` on what two real jobs wrote, and on copies that were tampered with."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
import typer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from support.stack.drawn_logs import Raw, draw, logs_of
from support.stack.jobs import settings_of, workspace
from support.stack.topics import create, fresh, header, produce, records
from typer.testing import CliRunner

from ordering.protocol.wire import CTI_HEADER_BYTES, EVENT_HEADER_BYTES, HEADER_NAME, decode_cti, decode_event_headers, encode_cti
from ordering.ticks import format_tick
from tidegate.ordered_topic.compare.sides import make_side
from tidegate.ordered_topic.compare.topics import PartitionDigester, PartitionSummary, walk_partition
from tidegate.platform.kafka.admin import Admin
from tidegate.platform.kafka.ranges import RangeReader
from tidegate.platform.observe.console import report_errors
from tidegate.tools.commands.compare import compare

if TYPE_CHECKING:
    from support.stack.servers import Stack

pytestmark = pytest.mark.integration

PARTITIONS, EVENTS = 2, 12_000
TABLES = """
[inputs.events]
topic = "{topic}"
timestamp_by = "at"
over = "k"
early = "20s"
late = "30s"
reorder = "3s"
# Two batches at least, so that there is a CTI before the final ones.
max_events_per_batch = 9000

[inputs.again]
topic = "{topic}"
ordered_topic = "{topic}.again"
timestamp_by = "at"
over = "k"
early = "20s"
late = "30s"
reorder = "3s"
max_events_per_batch = 2000
"""
SETTINGS = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(report_errors(compare))


@dataclass(frozen=True)
class Line:
    """One record of an ordered topic, fit for producing it again."""

    partition: int
    key: bytes | None
    value: bytes | None
    stamp_ms: int
    header: bytes

    @property
    def is_event(self) -> bool:
        """Whether it is no CTI."""
        return len(self.header) == EVENT_HEADER_BYTES

    @property
    def fields(self) -> dict[str, int]:
        """An event's header by name."""
        row = decode_event_headers([self.header])[0]
        return {name: int(row[name]) for name in row.dtype.names}


@dataclass
class Pair:
    """What two jobs wrote of one raw topic, and a third one from an instant *start* on."""

    stack: Stack
    topic: str
    raws: list[Raw]
    lines: list[Line]
    start: str

    def compare(self, a: str, b: str, *flags: str, exit_code: int = 0) -> dict[str, Any]:
        """Run the command; return what it told."""
        addresses = {"TIDEGATE_KAFKA__BOOTSTRAP": self.stack.bootstrap, "TIDEGATE_REDIS__URL": self.stack.redis_url}
        result = CliRunner().invoke(app, [a, b, "--format", "json", *flags], env=addresses)
        assert result.exit_code == exit_code, result.output
        codes = re.findall(r'^{"error": {"code": "(TG-[A-Z-]+)"', result.stderr, re.MULTILINE)
        return {"error": codes[0]} if codes else dict(json.loads(result.stdout))

    def tampered(self, change: Callable[[list[Line]], list[Line]]) -> str:
        """Return a copy of the first topic, changed."""
        name = create(self.stack.bootstrap, fresh("tampered"), PARTITIONS, SETTINGS)
        producer = Producer({"bootstrap.servers": self.stack.bootstrap, "enable.idempotence": True})
        for line in change(list(self.lines)):
            producer.produce(name, line.value, line.key, line.partition, timestamp=line.stamp_ms, headers=[(HEADER_NAME, line.header)])
        assert producer.flush(30) == 0
        return name


@pytest.fixture(scope="module")
def pair(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One job in large batches, and one in small ones that is killed in the midst of them and started again."""
    raws = draw(7, EVENTS, PARTITIONS, bad=0.01, keys=[f"key{number}" for number in range(50)])
    topic = create(stack.bootstrap, fresh("twice"), PARTITIONS)
    produce(stack.bootstrap, topic, raws)
    with workspace(tmp_path_factory.mktemp("compare"), stack, TABLES.format(topic=topic)) as space:
        again = space.start("ingest", "again")
        again.until(lambda: again.batches >= 2, "some batches")
        again.kill()
        again = space.start("ingest", "again", "--until-end", *settings_of(spark__trigger="50ms"))
        once = space.start("ingest", "events", "--until-end")
        once.finish()
        again.finish()
        lines = lines_of(stack, f"{topic}.ordered")
        start = format_tick(sorted(line.fields["system_us"] for line in lines if line.is_event)[EVENTS // 2])
        flags = settings_of(inputs__again__ordered_topic=f"{topic}.begun")
        space.start("ingest", "again", "--until-end", "--start", start, *flags).finish()
        yield Pair(stack, topic, raws, lines, start)


def lines_of(stack: Stack, name: str) -> list[Line]:
    """Return every record of an ordered topic."""
    found = []
    for message in records(stack.bootstrap, name):
        place = message.partition() or 0, message.key(), message.value(), message.timestamp()[1]
        found.append(Line(*place, header(message, HEADER_NAME)))
    return found


def test_two_jobs_one_of_them_killed_write_the_same_events(pair: Pair) -> None:
    """Law, level 1: other batches, another trigger and a kill -9 change no byte of any channel."""
    found = pair.compare(f"{pair.topic}.ordered", f"{pair.topic}.again")
    assert found["same"]
    assert found["equal"] == found["a"]["events"] == found["b"]["events"] > EVENTS * 0.8
    assert found["a"]["channels"] == found["b"]["channels"] == PARTITIONS**2
    assert found["a"]["ended"]
    assert found["b"]["ended"]
    assert found["b"]["ctis"] > found["a"]["ctis"], "there were more batches"
    assert not found["a"]["unproven_ctis"] + found["b"]["unproven_ctis"]
    assert not found["broken"]


def test_a_stretch_of_time_is_compared_by_itself(pair: Pair) -> None:
    """Law, level 1, of the events with from <= s < until, found by the rule for starting in the middle."""
    times = sorted(line.fields["system_us"] for line in pair.lines if line.is_event)
    start, until = times[len(times) // 3], times[2 * len(times) // 3]
    flags = "--from", format_tick(start), "--until", format_tick(until), "--complete", "--bootstrap-b", pair.stack.bootstrap
    found = pair.compare(f"{pair.topic}.ordered", f"{pair.topic}.again", *flags)
    assert found["same"]
    assert found["equal"] == sum(start <= time < until for time in times)


def test_a_topic_that_was_begun_later_is_compared_from_there(pair: Pair) -> None:
    """Law, level 1, of ``--start``: its events are those of a run from the beginning, in their order, though it numbers them from 0."""
    found = pair.compare(f"{pair.topic}.ordered", f"{pair.topic}.begun", "--from", pair.start, "--complete")
    assert found["same"]
    assert found["equal"] == found["b"]["events"] > EVENTS // 3
    assert not pair.compare(f"{pair.topic}.ordered", f"{pair.topic}.begun", exit_code=1)["same"]


def test_one_byte_that_differs_is_found_and_explained(pair: Pair) -> None:
    """Which channel, seq and field, both values, both places and the raw record."""
    place = next(at for at, line in enumerate(pair.lines) if line.is_event and line.fields["seq"] == 700)
    line = pair.lines[place]
    assert line.value is not None
    changed = line.value[:-2] + b"#" + line.value[-1:]
    found = pair.compare(
        f"{pair.topic}.ordered",
        pair.tampered(lambda lines: [*lines[:place], replace(line, value=changed), *lines[place + 1 :]]),
        exit_code=1,
    )
    (difference,) = found["differences"]
    assert difference["channel"] == {"number": line.fields["number"], "partition": line.partition}
    assert difference["equal_before"] == 700
    assert difference["kind"] == "fields"
    assert difference["fields"] == ["value"]
    assert difference["a"]["seq"] == difference["b"]["seq"] == 700
    raw = f"input partition {line.fields['number']} @{line.fields['offset']}"
    assert difference["a"]["raw"] == raw
    assert logs_of(pair.raws, PARTITIONS)[line.fields["number"]][line.fields["offset"]].value == line.value
    assert difference["a"]["value"] != difference["b"]["value"]
    assert "payloads differ" in difference["hint"]


def test_an_event_that_is_missing_is_told_from_events_that_change_places(pair: Pair) -> None:
    """A gap that is numbered over, and a pair whose numbers were exchanged."""
    channel = [line for line in pair.lines if line.is_event and line.partition == 0 and line.fields["number"] == 1]
    place = next(at for at in range(500, len(channel)) if channel[at].fields["system_us"] < channel[at + 1].fields["system_us"])
    gone = {id(line): replace(line, header=renumbered(line, -1)) for line in channel[place + 1 :]}
    found = pair.compare(
        f"{pair.topic}.ordered",
        pair.tampered(lambda lines: [gone.get(id(line), line) for line in lines if line is not channel[place]]),
        exit_code=1,
    )
    (difference,) = found["differences"]
    assert difference["kind"] == "missing in B"
    assert difference["equal_before"] == place
    assert found["broken"], "CTIs number an event that is not there"
    one, other = channel[place], channel[place + 1]
    swapped = {id(one): replace(other, header=renumbered(other, -1)), id(other): replace(one, header=renumbered(one, 1))}
    found = pair.compare(f"{pair.topic}.ordered", pair.tampered(lambda lines: [swapped.get(id(line), line) for line in lines]), exit_code=1)
    (difference,) = found["differences"]
    assert difference["kind"] == "swapped"
    assert difference["a"]["raw"] != difference["b"]["raw"]


def renumbered(line: Line, by: int) -> bytes:
    """Return an event's header with another seq."""
    header = decode_event_headers([line.header]).copy()
    header["seq"] += by
    return header.tobytes()


def test_a_promise_that_is_not_kept_is_found_though_the_events_are_the_same(pair: Pair) -> None:
    """A CTI that says too much: its topic belies itself, and the record is named."""
    ctis = [at for at, line in enumerate(pair.lines) if len(line.header) == CTI_HEADER_BYTES]
    place = next(at for at in ctis if read(pair.lines[at]).c < 2**62)
    line = pair.lines[place]
    later = encode_cti(replace(read(line), c=read(line).c + 3_600_000_000))[1]
    topic = pair.tampered(lambda lines: [*lines[:place], replace(line, value=later), *lines[place + 1 :]])
    found = pair.compare(f"{pair.topic}.ordered", topic, exit_code=1)
    assert not found["same"]
    assert not found["differences"]
    assert {broken["topic"] for broken in found["broken"]} == {topic}


def read(line: Line) -> Any:
    """Return the CTI that a record carries."""
    return decode_cti(line.header, line.value or b"", line.partition)


def test_a_topic_that_is_not_that_far_yet_is_no_difference(pair: Pair) -> None:
    """Until it is to be complete; and what no CTI says yet counts as well."""
    half = pair.tampered(lambda lines: [line for line in lines if line.partition == 0][: len(lines) // 4])
    found = pair.compare(f"{pair.topic}.ordered", half)
    assert found["same"]
    assert found["a"]["ahead"] == found["a"]["events"] - found["b"]["events"] > 0
    assert found["equal"] == found["b"]["events"]
    found = pair.compare(f"{pair.topic}.ordered", half, "--complete", exit_code=1)
    assert {difference["kind"] for difference in found["differences"]} == {"ended"}


def test_of_a_topic_whose_beginning_is_gone_only_what_is_surely_whole_is_compared(pair: Pair) -> None:
    """Retention: without a time it is refused; from a time on that CTIs vouch for, what is left is the same."""
    cut = pair.tampered(lambda _: lines_of(pair.stack, f"{pair.topic}.again"))
    gone = [TopicPartition(cut, partition, 400) for partition in range(PARTITIONS)]
    client = AdminClient({"bootstrap.servers": pair.stack.bootstrap})
    for future in client.delete_records(gone).values():
        future.result(30)
    assert pair.compare(f"{pair.topic}.ordered", cut, exit_code=3)["error"] == "TG-RETENTION"
    times = sorted(line.fields["system_us"] for line in pair.lines if line.is_event)
    early, late = format_tick(times[10]), format_tick(times[-len(times) // 4])
    assert pair.compare(f"{pair.topic}.ordered", cut, "--from", early, exit_code=3)["error"] == "TG-RETENTION"
    found = pair.compare(f"{pair.topic}.ordered", cut, "--from", late, "--complete")
    assert found["equal"] == sum(time >= times[-len(times) // 4] for time in times)


@pytest.mark.parametrize("seed", range(3))
def test_records_that_another_has_read_count_as_if_they_were_read_here(pair: Pair, seed: int) -> None:
    """Handed over late, with gaps, twice, and beyond the end: the summary of a partition is that of a walk of its own."""
    dice, properties = random.Random(seed), {"bootstrap.servers": pair.stack.bootstrap}
    admin = Admin(properties)
    whole = make_side("A", admin, properties, admin.require(f"{pair.topic}.again"), None)
    side = replace(whole, ends=tuple(dice.randint(end // 2, end) for end in whole.ends))
    for partition in range(PARTITIONS):
        digester = PartitionDigester(side, partition, None)
        with RangeReader(properties, side.topic, partition, headers=True) as reader:
            for piece in reader.read(dice.choice([0, 300]), whole.ends[partition], 500):
                for _ in range(dice.choice([0, 1, 1, 2])):
                    digester.add_records(piece)
        found, wanted = digester.finish(lambda _: None), walk_partition(side, partition, None, lambda _: None)
        assert summary_of(found) == summary_of(wanted)
        assert found.records == side.ends[partition]


def summary_of(found: PartitionSummary) -> Any:
    """Return what a comparison uses of a partition."""
    channels = {
        number: (each.digest.count, each.digest.blocks, each.digest.block_starts, each.digest.rest_digest(), each.check.ctis, each.check.c)
        for number, each in found.channels.items()
    }
    return channels, found.roster, found.records, found.duplicates, found.torn, found.unmet


def test_what_cannot_be_compared_is_refused_with_a_reason(pair: Pair) -> None:
    """Topics with other partitions, topics that are none, raw topics."""
    other = create(pair.stack.bootstrap, fresh("other"), PARTITIONS + 1, SETTINGS)
    assert pair.compare(f"{pair.topic}.ordered", other, exit_code=3)["error"] == "TG-COMPARE-PARTITIONS"
    assert pair.compare(f"{pair.topic}.ordered", "nowhere", exit_code=3)["error"] == "TG-TOPIC-MISSING"
    assert pair.compare(f"{pair.topic}.ordered", pair.topic, exit_code=5)["error"] == "TG-PROTOCOL"
