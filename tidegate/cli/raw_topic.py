"""
The commands of producers: ``tidegate topic create``, since the embedded Kafka creates no topic by itself, and ``tidegate produce``, which
sends the lines of a file, or a sample, as records.

Law: an existing topic is never changed; ordered topics and result topics are made by the stages that write them. Each line is one record
with its bytes unchanged, in the order of the file within each partition. Nothing is sent to a topic that a stage writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ordering.errors import RefusedError, SettingError, TidegateError
from ordering.ticks import HOUR_US, MILLISECOND_US, SECOND_US
from tidegate.observe.console import Format, print_json
from tidegate.observe.terminal import Styled, print_lines, standard_error

if TYPE_CHECKING:
    from tidegate.settings.load import Settings

_LINES_AT_ONCE = 10_000
_FLUSH_S = 1.0
_SAMPLE_CARS = 5
_SAMPLE_EVERY_US = 10 * SECOND_US


class Action(StrEnum):
    """What is done with the topic."""

    CREATE = "create"


def topic(
    action: Annotated[Action, typer.Argument(help="create")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic.")],
    partitions: Annotated[int, typer.Option(min=1, help="How many partitions: as many as ingest shall read side by side.")] = 1,
    log_append_time: Annotated[
        bool, typer.Option("--log-append-time", help="The broker stamps the records, so that silence moves time; not for history.")
    ] = False,
    replication_factor: Annotated[int, typer.Option(min=1, help="Copies of each partition.")] = 1,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Create a raw topic; one that is there with as many partitions is left as it is."""
    from tidegate.kafka.admin import Admin
    from tidegate.settings.load import load_assigned

    settings = load_assigned(config, assign)
    admin = Admin.connect(settings.kafka)
    present = admin.find(name)
    wanted = {"message.timestamp.type": "LogAppendTime" if log_append_time else "CreateTime"}
    topic_used = present or admin.create(name, partitions, wanted, replication_factor)
    if topic_used.partitions != partitions or topic_used.uses_log_append_time != log_append_time:
        clock = topic_used.config.get("message.timestamp.type", "?")
        what = f"topic {name} is there already, with {topic_used.partitions} partitions and {clock}"
        raise RefusedError(what, code="TG-TOPIC-PARTITIONS", where=name, fix="use it as it is, or name another topic")
    if format is Format.JSON:
        print_json({"topic": name, "partitions": partitions, "timestamps": wanted["message.timestamp.type"], "created": present is None})
    else:
        stamped = "the broker stamps records" if log_append_time else "producers stamp records"
        print_lines([f"{'created' if present is None else 'there already:'} {name} (partitions: {partitions}; {stamped})"])


@dataclass(frozen=True, slots=True)
class Line:
    """A record to produce: its bytes, its key (None: none), and its timestamp in milliseconds (None: the time at which it is produced)."""

    value: bytes
    key: bytes | None = None
    timestamp_ms: int | None = None


def produce(
    places: Annotated[
        list[str], typer.Argument(metavar="[FILE] TOPIC", help="A file with a record in each line (- is standard input), and a raw topic.")
    ],
    sample: Annotated[
        bool, typer.Option("--sample", help="Instead of a file: an hour of taxis up to now, as in README; again: what came since.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="JSON field with the record's key: equal keys go to one partition.")] = None,
    timestamp_by: Annotated[
        str | None, typer.Option(help="JSON field with the record's timestamp, for history; default: the present moment.")
    ] = None,
    timestamp_format: Annotated[str, typer.Option(help="How it is written: auto, iso, s, ms, us or ns.")] = "auto",
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Produce the lines of a file, or a sample, to a raw topic."""
    from tidegate.settings.load import load_assigned

    if len(places) != (1 if sample else 2):
        raise SettingError(
            "a topic is needed, and either a file or --sample",
            code="TG-SETTING-FLAG",
            where="produce",
            example="tidegate produce rides.ndjson taxis, or tidegate produce --sample taxis",
        )
    topic, reader = places[-1], _LineReader(key, timestamp_by, timestamp_format)
    settings = load_assigned(config, assign)
    _refuse_own_topic(settings, topic)
    with nullcontext() if sample else _open(places[0]) as file:
        newest_ms = _check_topic(settings, topic, has_own_times=sample or timestamp_by is not None)
        made = sample_lines(time.time_ns() // 1000)
        # Produced again, the sample goes on: a second hour of the same time would be late.
        lines = reader.read(file) if file else (line for line in made if (line.timestamp_ms or 0) > newest_ms)
        with standard_error().spinner(f"producing to {topic}"):
            count = _send(settings, topic, lines)
    if format is Format.JSON:
        print_json({"topic": topic, "records": count, "without_key": reader.without_key, "without_timestamp": reader.without_time})
        return
    print_lines([f"produced {count:,} records to {topic}"])
    if reader.without_time:
        print_lines([f"without a valid {timestamp_by}: {reader.without_time:,}, which bear the timestamp of the record before"])
    if reader.without_key:
        print_lines([f"without {key}: {reader.without_key:,}, which have no key"])


def sample_lines(now_us: int) -> Iterator[Line]:
    """
    Yield an hour of positions of five taxis up to *now_us*, in the order of their arrival, which is their timestamp. Most arrive up to four
    seconds late; one in a hundred arrives two minutes late, and breaks README's ``late``.
    """
    arrivals = []
    for number in range(HOUR_US // _SAMPLE_EVERY_US * _SAMPLE_CARS):
        turn, car = divmod(number, _SAMPLE_CARS)
        at_us = (now_us - HOUR_US) // SECOND_US * SECOND_US + turn * _SAMPLE_EVERY_US + car * 2 * SECOND_US
        late_ms = 120_000 if number % 100 == 50 else number * 7_919 % 4_000
        speed = 30 + number * 37 % 41
        payload = f'{{"at": {at_us // MILLISECOND_US / 1000}, "car": "{"abcde"[car]}", "speed": {speed}}}'
        arrivals.append((at_us // MILLISECOND_US + late_ms, number, payload, "abcde"[car]))
    for arrival_ms, _, payload, car_name in sorted(arrivals):
        if arrival_ms * MILLISECOND_US <= now_us:
            yield Line(payload.encode(), car_name.encode(), arrival_ms)


class _LineReader:
    """Reads lines, with their keys and timestamps from JSON fields; counts the lines without a key or a timestamp."""

    def __init__(self, key: str | None, timestamp_by: str | None, timestamp_format: str) -> None:
        self._key, self._timestamp_by, self._format = key, timestamp_by, timestamp_format
        self.without_key = self.without_time = 0
        self._last_ms: int | None = None

    def read(self, file: BinaryIO) -> Iterator[Line]:
        lines = (stripped for line in file if (stripped := line.rstrip(b"\r\n")).strip())
        if self._key is None and self._timestamp_by is None:
            yield from map(Line, lines)
            return
        while part := list(islice(lines, _LINES_AT_ONCE)):
            yield from self._with_fields(part)

    def _with_fields(self, values: list[bytes]) -> Iterator[Line]:
        import pyarrow as pa

        from ingest.fields import FieldReader

        fields = FieldReader(self._timestamp_by, self._format, self._key).read(pa.array(values, pa.binary()))
        keys = [None] * len(values) if fields.substream is None else fields.substream.to_pylist()
        for value, key, time_us, is_timed in zip(values, keys, fields.event_time_us.tolist(), fields.timed.tolist(), strict=True):
            if self._timestamp_by is not None:
                if is_timed and time_us >= 0:
                    self._last_ms = time_us // MILLISECOND_US
                else:
                    self.without_time += 1
            self.without_key += self._key is not None and not key
            yield Line(value, key or None, self._last_ms)


def _open(path: str) -> BinaryIO:
    try:
        return open(0 if path == "-" else path, "rb", closefd=path != "-")
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}", code="TG-SETTING-FLAG", where="FILE") from None


def _refuse_own_topic(settings: Settings, name: str) -> None:
    from ingest.planner.joining_partitions import own_topics

    if name in own_topics(settings):
        what = f"{name} is written by a stage of this configuration: records of others would break it"
        raise RefusedError(what, code="TG-PRODUCE-OWN", where=name, fix="name a raw topic")


def _check_topic(settings: Settings, name: str, *, has_own_times: bool) -> int:
    """Return the newest timestamp in a raw topic, milliseconds; -1 if it is empty."""
    from tidegate.kafka.admin import MAX_TIMESTAMP, Admin

    admin = Admin.connect(settings.kafka)
    topic = admin.require(name, f"create it: tidegate topic create {name} --partitions 2")
    if has_own_times and topic.uses_log_append_time:
        consequence = f": {name} is LogAppendTime: its broker overwrites the timestamps, so that history arrives now (docs/backfill.md)"
        standard_error().line(Styled("warning", "yellow"), consequence)
    newest = admin.offsets([(name, number) for number in range(topic.partitions)], MAX_TIMESTAMP)
    return max(int(offset.timestamp) for offset in newest.values())


def _send(settings: Settings, topic: str, lines: Iterable[Line]) -> int:
    """Send all lines; return how many. TidegateError: the brokers refuse one."""
    from confluent_kafka import KafkaError, Producer

    from tidegate.kafka.client_properties import STEADY
    from tidegate.kafka.failures import kafka_failure

    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            refused.append(error)

    own = {"acks": "all", "enable.idempotence": "true", "linger.ms": "20", "compression.type": "lz4", "partitioner": "murmur2_random"}
    properties = settings.kafka.client_properties()
    producer = Producer({**STEADY, **own, **properties, "log_level": 2, "on_delivery": on_delivery})
    count = 0
    for line in lines:
        # Without a timestamp, 0, librdkafka takes the present moment.
        while True:
            try:
                producer.produce(topic, line.value, line.key, timestamp=line.timestamp_ms or 0)
                break
            except BufferError:
                producer.poll(0.05)
        count += 1
        producer.poll(0)
        if refused:
            break
    while producer.flush(_FLUSH_S) and not refused:
        pass
    if refused:
        failure: TidegateError = kafka_failure(refused[0], topic, "Write", properties=properties)
        raise failure
    return count
