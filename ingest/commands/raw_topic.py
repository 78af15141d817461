"""
The commands of producers: ``tidegate topic create``, since the embedded Kafka creates no topic by itself, and ``tidegate produce``, which
sends the lines of a file, a sample, or events with the disorder of a profile, as records.

The records of a raw topic of live events are stamped by its broker (LogAppendTime), so that silence is time; those of history by producers
(CreateTime), so that each keeps the time at which it arrived then.

Law: an existing topic is never changed; ordered topics and result topics are made by the stages that write them. Each line is one record
with its bytes unchanged, in the order of the file within each partition. Nothing is sent to a topic that a stage writes.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ingest.commands.like import Likeness, history_lines, live_lines, write_rows
from ingest.commands.sample import Line, sample_history, sample_live
from ordering.errors import RefusedError, SettingError, TidegateError
from ordering.ticks import MILLISECOND_US, parse_duration
from tidegate.basics.bounded_files import read_lines
from tidegate.platform.observe.console import Format, print_json
from tidegate.platform.observe.terminal import print_lines, standard_error
from tidegate.platform.settings.tables.base import COPIES_MAX, PARTITIONS_MAX

if TYPE_CHECKING:
    from tidegate.platform.kafka.admin import Topic
    from tidegate.platform.settings.load import Settings

_LINES_AT_ONCE = 10_000
# As long as the longest record of a file in tidegate order.
_LINE_BYTES_MAX = 64 * 2**20
_FLUSH_S = 1.0


class TopicAction(StrEnum):
    """What is done with the topic."""

    CREATE = "create"
    LIST = "list"
    DESCRIBE = "describe"
    DELETE = "delete"


class TimestampType(StrEnum):
    """Who stamps the records of a topic: the broker when it appends them, or the producer that created them."""

    APPEND = "append"
    CREATE = "create"

    @property
    def kafka_name(self) -> str:
        """Kafka's name, a value of ``message.timestamp.type``."""
        return {"append": "LogAppendTime", "create": "CreateTime"}[self.value]


_MEANINGS = {
    "LogAppendTime": "the broker stamps records, so that silence moves time; for history --timestamp-type create, docs/operate/backfill.md",
    "CreateTime": "producers stamp records, as history needs it; silence moves no time, docs/operate/time.md",
}


def topic(
    action: Annotated[TopicAction, typer.Argument(help="create a raw topic; list; describe; or delete one that no stage writes.")],
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The topic; list takes none.")] = None,
    partitions: Annotated[
        int, typer.Option(min=1, max=PARTITIONS_MAX, help="How many partitions: as many as ingest shall read side by side.")
    ] = 1,
    timestamp_type: Annotated[
        TimestampType | None,
        typer.Option(help="Who stamps the records: append, the broker (live events; default), or create, the producer (history)."),
    ] = None,
    log_append_time: Annotated[bool, typer.Option("--log-append-time", hidden=True)] = False,
    replication_factor: Annotated[int, typer.Option(min=1, max=COPIES_MAX, help="Copies of each partition.")] = 1,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Create a raw topic, list and describe topics, or delete one; a topic that is there with as many partitions is left as it is."""
    from ingest.commands.topics import delete_topic, describe_topic, list_topics
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    if (name is None) != (action is TopicAction.LIST):
        what = f"{action} needs a topic" if name is None else "list takes no topic"
        raise SettingError(what, code="TG-SETTING-FLAG", where="NAME", example=f"tidegate topic {action}{' taxis' if name is None else ''}")
    admin = Admin.connect(settings.kafka, deletes=action is TopicAction.DELETE)
    if name is None:
        list_topics(settings, admin, format)
        return
    if action is TopicAction.DESCRIBE:
        describe_topic(settings, admin, name, format)
        return
    if action is TopicAction.DELETE:
        delete_topic(settings, admin, name, format, is_sure=yes)
        return
    asked = TimestampType.APPEND if log_append_time else timestamp_type
    present = admin.find(name)
    wanted = {"message.timestamp.type": (asked or TimestampType.APPEND).kafka_name}
    topic_used = present or admin.create(name, partitions, wanted, replication_factor)
    clock = topic_used.config.get("message.timestamp.type", "CreateTime")
    if topic_used.partitions != partitions or (asked is not None and clock != asked.kafka_name):
        what = f"topic {name} is there already, with {topic_used.partitions} partitions and {clock}"
        raise RefusedError(what, code="TG-TOPIC-PARTITIONS", where=name, fix="use it as it is, or name another topic")
    if format is Format.JSON:
        print_json({"topic": name, "partitions": partitions, "timestamps": clock, "created": present is None})
    else:
        print_lines(
            [f"{'created' if present is None else 'there already:'} {name} (partitions: {partitions}; {clock}: {_MEANINGS[clock]})"]
        )


def produce(
    places: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE] TOPIC", help="A file with a record in each line (- is standard input), and a raw topic."),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="Instead of a file: README's taxis, live until Ctrl-C; to a CreateTime topic an hour up to now; again: what came since.",
        ),
    ] = False,
    duration: Annotated[str, typer.Option("--for", help="End the live sample after this long, as in 5m.")] = "",
    like: Annotated[
        Path | None,
        typer.Option(metavar="PROFILE", help="Instead of a file: events with the disorder of a profile (tidegate profile --write)."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, max=10_000_000, help="Of --like: how many; default: as many as measured.")] = None,
    rate: Annotated[float | None, typer.Option(help="Of --like: events in a second, on average; default: as measured.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of --like: another number draws other events.")] = 0,
    examples: Annotated[Path | None, typer.Option(help="Of --like: a file of events whose other fields the new ones get.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE.ndjson", help="Of --like: write to a file, instead of to a topic.")] = None,
    key: Annotated[str | None, typer.Option(help="JSON field with the record's key: equal keys go to one partition.")] = None,
    timestamp_by: Annotated[
        str | None, typer.Option(help="JSON field with the record's timestamp, for history; default: the present moment.")
    ] = None,
    timestamp_format: Annotated[str, typer.Option(help="How it is written: auto, iso, s, ms, us or ns.")] = "auto",
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: kafka.bootstrap=host:9092")] = None,
    format: Annotated[Format, typer.Option("--format", help="What is printed on standard output.")] = Format.TEXT,
) -> None:
    """Produce the lines of a file, a sample, or events with a measured disorder, to a raw topic."""
    from tidegate.platform.observe.stopping import stop_on_signal
    from tidegate.platform.settings.load import load_assigned

    likeness = None if like is None else Likeness.of(like, count, rate, seed, examples)
    if like is None and (count, rate, examples, output, seed) != (None, None, None, None, 0):
        raise _flags_error("--count, --rate, --seed, --examples and --output say more about --like, which is missing")
    if likeness is not None and output is not None and not places and not sample:
        _print_count(str(output), write_rows(likeness, output), format)
        return
    has_maker = sample or likeness is not None
    if len(places or ()) != (1 if has_maker else 2) or (sample and likeness is not None) or output is not None or places is None:
        raise _flags_error("a topic is needed, and either a file, --sample or --like")
    topic, reader = places[-1], _LineReader(key, timestamp_by, timestamp_format)
    duration_us = parse_duration(duration) if duration else None
    settings = load_assigned(config, assign)
    _refuse_own_topic(settings, topic)
    with nullcontext() if has_maker else _open(places[0]) as file, stop_on_signal() if has_maker else nullcontext() as stop:
        # What is wrong with the file is said before a server is asked.
        lines = reader.read(_lines_of(file, places[0])) if file is not None else iter(())
        target = _find_topic(settings, topic, has_own_times=timestamp_by is not None)
        title = f"producing to {topic}"
        if stop is not None and likeness is not None:
            now_us = time.time_ns() // 1000
            is_live = target.uses_log_append_time
            lines = live_lines(likeness, now_us, lambda: stop.is_asked) if is_live else history_lines(likeness, now_us)
            title += " as events arrive, until Ctrl-C" * is_live
        elif stop is not None and target.uses_log_append_time:
            lines = sample_live(duration_us, lambda: stop.is_asked)
            title += f": a position every 2 s{'' if duration else ', until Ctrl-C'}"
        elif stop is not None:
            # Produced again, the sample goes on: a second hour of the same time would be late.
            newest_ms = _newest_ms(settings, target)
            lines = (line for line in sample_history(time.time_ns() // 1000) if (line.timestamp_ms or 0) > newest_ms)
        with standard_error().spinner(title):
            sent = _send(settings, topic, lines)
    if format is Format.JSON:
        print_json({"topic": topic, "records": sent, "without_key": reader.without_key, "without_timestamp": reader.without_time})
        return
    print_lines([f"produced {sent:,} records to {topic}"])
    if reader.without_time:
        print_lines([f"without a valid {timestamp_by}: {reader.without_time:,}, which bear the timestamp of the record before"])
    if reader.without_key:
        print_lines([f"without {key}: {reader.without_key:,}, which have no key"])


def _flags_error(what: str) -> SettingError:
    example = "tidegate produce rides.ndjson taxis, tidegate produce --sample taxis, or tidegate produce --like taxis.toml taxis"
    return SettingError(what, code="TG-SETTING-FLAG", where="produce", example=example)


def _print_count(target: str, count: int, format: Format) -> None:
    if format is Format.JSON:
        print_json({"file": target, "records": count})
    else:
        print_lines([f"wrote {count:,} records to {target}"])


class _LineReader:
    """Reads lines, with their keys and timestamps from JSON fields; counts the lines without a key or a timestamp."""

    def __init__(self, key: str | None, timestamp_by: str | None, timestamp_format: str) -> None:
        self._key, self._timestamp_by, self._format = key, timestamp_by, timestamp_format
        self.without_key = self.without_time = 0
        self._last_ms: int | None = None

    def read(self, file: Iterable[bytes]) -> Iterator[Line]:
        lines = (stripped for line in file if (stripped := line.rstrip(b"\r\n")).strip())
        if self._key is None and self._timestamp_by is None:
            yield from map(Line, lines)
            return
        while part := list(islice(lines, _LINES_AT_ONCE)):
            yield from self._with_fields(part)

    def _with_fields(self, values: list[bytes]) -> Iterator[Line]:
        import pyarrow as pa

        from tidegate.records.fields import FieldReader

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


def _bounded_lines(file: BinaryIO, path: str) -> Iterator[bytes]:
    try:
        yield from read_lines(file, path, _LINE_BYTES_MAX)
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}", code="TG-SETTING-FLAG", where="FILE") from None


def _open(path: str) -> BinaryIO:
    try:
        return open(0 if path == "-" else path, "rb", closefd=path != "-")
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}", code="TG-SETTING-FLAG", where="FILE") from None


def _lines_of(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Return the lines of a file, without a byte order mark. Raises SettingError: its records are JSON over several lines."""
    from tidegate.records.files.json_arrays import BOM, JsonForm, detect_form, is_json

    form, peeked = detect_form(file)
    lines = _bounded_lines(file, path)
    first_lines = (peeked + next(lines, b"")).removeprefix(BOM)
    # A line may be an array: the input then explodes it.
    if form is not JsonForm.LINES and not is_json(first_lines.lstrip().partition(b"\n")[0]):
        what = f"{path} holds {form.value}: each of its lines would become a record, and none would be JSON"
        fix, example = "write one record a line", f"jq -c '{'.[]' if form is JsonForm.ARRAY else '.'}' {path} | tidegate produce - TOPIC"
        raise SettingError(what, code="TG-PRODUCE-FORM", where=path, fix=fix, example=example)
    return chain(io.BytesIO(first_lines), lines)


def _refuse_own_topic(settings: Settings, name: str) -> None:
    from tidegate.platform.settings.input_topics import own_topics

    if name in own_topics(settings):
        what = f"{name} is written by a stage of this configuration: records of others would break it"
        raise RefusedError(what, code="TG-PRODUCE-OWN", where=name, fix="name a raw topic")


def _find_topic(settings: Settings, name: str, *, has_own_times: bool) -> Topic:
    """Return the raw topic. Raises RefusedError: there is none, or its broker would overwrite the records' own times."""
    from tidegate.platform.kafka.admin import Admin

    topic = Admin.connect(settings.kafka).require(name, f"create it: tidegate topic create {name} --partitions 2")
    if has_own_times and topic.uses_log_append_time:
        what = f"{name} is LogAppendTime: its broker overwrites the timestamps, so that all of this history would arrive now"
        fix = (
            "produce history to a topic whose producers stamp the records (docs/operate/backfill.md), or live events without --timestamp-by"
        )
        example = f"tidegate topic create {name}-history --partitions {topic.partitions} --timestamp-type create"
        raise RefusedError(what, code="TG-PRODUCE-STAMPS", where=name, fix=fix, example=example)
    return topic


def _newest_ms(settings: Settings, topic: Topic) -> int:
    """Return the newest timestamp in a raw topic, milliseconds; -1 if it is empty."""
    from tidegate.platform.kafka.admin import MAX_TIMESTAMP, Admin

    newest = Admin.connect(settings.kafka).offsets(topic.all_partitions, MAX_TIMESTAMP)
    return max(int(offset.timestamp) for offset in newest.values())


def _send(settings: Settings, topic: str, lines: Iterable[Line]) -> int:
    """Send all lines; return how many. TidegateError: the brokers refuse one."""
    from confluent_kafka import KafkaError, Producer

    from tidegate.platform.kafka.client_properties import STEADY
    from tidegate.platform.kafka.failures import kafka_failure

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
