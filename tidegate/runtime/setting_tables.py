"""
The tables of ``tidegate.toml``: one frozen class each, every setting with its default, its unit and what it means.

Law: a value that exists is usable: each setting was checked by its kind, and the settings of one table against each
other. A field whose name ends in ``_us`` is written without that ending, as a duration with a unit of its own.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from ordering.errors import TidegateError
from ordering.policies import Action, Policies
from ordering.ticks import DAY_US, MILLISECOND_US, MINUTE_US, SECOND_US, format_duration
from tidegate.runtime.masking import scrub
from tidegate.runtime.setting_types import (
    Bootstrap,
    Duration,
    DurationOrForever,
    DurationOrOff,
    FieldPath,
    Kind,
    NotAllowed,
    Properties,
    RedisUrl,
    Size,
    Topic,
    Topics,
    reveal,
)

FieldType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]
Count = Annotated[int, Field(ge=1), Kind("count")]

OWN_CLIENT_PROPERTIES = {
    "bootstrap.servers": "use kafka.bootstrap",
    "metadata.broker.list": "use kafka.bootstrap",
    "acks": "ordered topics need acks=all",
    "request.required.acks": "ordered topics need acks=all",
    "enable.idempotence": "ordered topics need an idempotent writer",
    "enable.gapless.guarantee": "ordered topics need a gapless writer",
    "message.timeout.ms": "a gapless writer must not give up on a record",
    "delivery.timeout.ms": "a gapless writer must not give up on a record",
    "transactional.id": "sequence numbers take the place of transactions",
    "group.id": "positions are kept in checkpoints, not in consumer groups",
    "enable.auto.commit": "positions are kept in checkpoints, not in consumer groups",
    "enable.auto.offset.store": "positions are kept in checkpoints, not in consumer groups",
    "auto.offset.reset": "a missing offset must be reported, never skipped",
    "isolation.level": "it is fixed by the time model",
}
"""librdkafka properties that the law of the ordered topic fixes, each with the reason."""


class Contradiction(ValueError):
    """Settings of one table that cannot hold together: (setting at fault, what, fix) for each."""

    def __init__(self, conflicts: list[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(what for _, what, _ in conflicts))
        self.conflicts = conflicts


class Table(BaseModel):
    """What all tables share: nothing unknown, nothing changed afterwards, ``_us`` never written by the user."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=lambda name: name.removesuffix("_us"), hide_input_in_errors=True)


def _leave_the_law_alone(client: dict[str, SecretStr]) -> dict[str, SecretStr]:
    owned = [(key, f"{key} is not yours to set", OWN_CLIENT_PROPERTIES[key]) for key in client if key in OWN_CLIENT_PROPERTIES]
    if owned:
        raise Contradiction(owned)
    return client


class KafkaSettings(Table):
    """[kafka]: the brokers and how to reach them."""

    bootstrap: Bootstrap = Field(default="localhost:9092", description="Brokers asked first; the rest of the cluster is learned from them.")
    connect_timeout_us: Duration = Field(default=8 * SECOND_US, description="How long to wait for a broker before giving up with an error.")
    client: Annotated[Properties, AfterValidator(_leave_the_law_alone)] = Field(
        default_factory=dict,
        description="Any librdkafka property, such as security.protocol; secrets may be given as file:PATH or env:NAME.",
    )

    def client_properties(self) -> dict[str, str]:
        """Return librdkafka properties for any client, secrets included: bootstrap.servers and [kafka.client]. Never log it."""
        return {"bootstrap.servers": self.bootstrap, **reveal(self.client)}


class RedisSettings(Table):
    """[redis]: the journal and what tools read."""

    url: RedisUrl = Field(
        default=SecretStr("redis://localhost:6379/0"), description="Where Redis or Valkey answers; a password in it is never shown."
    )
    connect_timeout_us: Duration = Field(default=8 * SECOND_US, description="How long to wait for Redis before giving up with an error.")
    journal_durability: Literal["disk", "memory"] = Field(
        default="disk",
        description="disk: an estimate is used only once on the disk of Redis; memory: a crash of Redis may lose some (warned about).",
    )

    def connection_url(self) -> str:
        """Return the URL with its password, for the client. Never log it."""
        return self.url.get_secret_value()

    @property
    def address(self) -> str:
        """The URL as it may be shown, without its password."""
        return scrub(self.connection_url())


class SparkSettings(Table):
    """[spark]: where and how the jobs run."""

    master: str = Field(default="local[*]", description="Spark master: local[N], spark://host:port, yarn or k8s://...")
    app_name: str = Field(default="tidegate", description="Name of the application in Spark's own tools.")
    shuffle_partitions: Annotated[Count, Kind("count; default: the number of cores")] = Field(
        default_factory=lambda: os.cpu_count() or 1, description="Tasks a stateful stage runs in; fixed in a checkpoint at its first start."
    )
    trigger_us: Duration = Field(
        default=0, description="Least time between the starts of two batches; 0s: as soon as there is something to do."
    )
    driver_memory: Annotated[str, Field(pattern=r"^\d+[kmgt]$"), Kind("JVM size, such as 512m or 1g")] = Field(
        default="1g", description="Heap of the driver's JVM."
    )
    conf: Properties = Field(default_factory=dict, description="Any Spark property, passed on as it is.")
    checkpoint_dir: str = Field(
        default=".tidegate/checkpoints", description="Folder (or URL) of the checkpoints; one folder in it for each job."
    )

    def properties(self) -> dict[str, str]:
        """Return [spark.conf] with its secrets, for the session builder. Never log it."""
        return reveal(self.conf)


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise NotAllowed("letters, digits and _, not starting with a digit: queries use it as a name")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
"""The name of an input or output, as queries say it."""


def _named_like_input(data: dict[str, Any]) -> tuple[str, ...]:
    return (data["name"],)


def _ordered_topic(data: dict[str, Any]) -> str:
    topics = data["topics"]
    return f"{topics[0] if len(topics) == 1 else data['name']}.ordered"


def _dead_letter_topic(data: dict[str, Any]) -> str:
    return f"{data['ordered_topic']}.dead"


_EVENT_TIME_SETTINGS = ("early", "late", "late_action", "reorder", "out_of_order_action", "timestamp_format", "over")


class InputSettings(Table):
    """[inputs.NAME]: one input, its time policies and its ordered topic (spec sections 1 to 4)."""

    name: str = Field(default="", alias="__name__", exclude=True)
    topics: Annotated[Topics, Kind("topic name, or a list of them; default: the input's name")] = Field(
        default_factory=_named_like_input, alias="topic", description="Kafka topic or topics with the raw events."
    )
    ordered_topic: Annotated[Topic, Kind("topic name; default: the topic's (of several: the input's) name + \".ordered\"")] = Field(
        default_factory=_ordered_topic, description="Kafka topic that ingest writes in order; made when missing."
    )
    output_partitions: Annotated[Count | None, Kind("count; default: as many as the input has")] = Field(
        default=None, description="Partitions of the ordered topic; fixed once it is made."
    )
    replication_factor: Count = Field(default=1, description="Copies of each partition of topics that are made.")
    retention_us: DurationOrForever = Field(
        default=None, description="How long the ordered topic keeps events, measured by their system timestamp."
    )
    format: Literal["json"] = Field(default="json", description="How payloads are written.")
    arrival: Literal["broker"] = Field(default="broker", description="Where arrival time comes from; broker: the Kafka record timestamp.")
    arrival_max_ahead_us: Duration = Field(
        default=DAY_US, description="A record stamped further ahead of the wall clock goes to the dead-letter topic."
    )
    timestamp_by: FieldPath | None = Field(
        default=None, description="Field with the event time; absent: events are taken in arrival order."
    )
    timestamp_format: Literal["auto", "iso", "s", "ms", "us", "ns"] = Field(
        default="auto", description="How event time is written: ISO-8601 text, or a number since 1970; auto: told from each value."
    )
    over: FieldPath | None = Field(
        default=None, description="Field whose values are substreams with a watermark each; absent: one timeline per partition."
    )
    early_us: DurationOrOff = Field(default=5 * MINUTE_US, description="An event whose time is further ahead of its arrival is dropped.")
    late_us: DurationOrOff = Field(
        default=5 * SECOND_US, description="An event that arrives later than this after its time is late; off only without over."
    )
    late_action: Literal["adjust", "drop"] = Field(
        default="adjust", description="What happens to a late event: lifted to arrival - late, or dropped."
    )
    reorder_us: Duration = Field(default=0, description="How long events are held to be put in order; adds this much delay.")
    out_of_order_action: Literal["adjust", "drop"] = Field(
        default="adjust", description="What happens to an event below the watermark: lifted to it, or dropped."
    )
    idle: Literal["auto", "on", "off"] = Field(
        default="auto", description="Whether silence advances time; auto: on for LogAppendTime topics only."
    )
    idle_cadence_us: Duration = Field(default=SECOND_US, description="How often the arrival time of a silent partition is estimated.")
    idle_margin_us: Duration = Field(
        default=500 * MILLISECOND_US, description="How far an estimate stays behind the elapsed time (plus 0.1 % of the silence)."
    )
    dead_letter_topic: Annotated[Topic, Kind('topic name; default: the ordered topic\'s name + ".dead"')] = Field(
        default_factory=_dead_letter_topic, description="Kafka topic for records that cannot be read, with the reason."
    )
    max_events_per_batch: Count = Field(default=1_000_000, description="Most events one batch reads, over all partitions of the input.")
    prefetch_bytes: Annotated[Size, Field(ge=1024)] = Field(
        default=16 * 2**20, description="Most bytes fetched ahead of the reader, for each partition; a worker's memory follows it."
    )
    fields: dict[str, FieldType] = Field(
        default_factory=dict,
        description="Types of payload fields for queries; undeclared numbers are bigint without point and exponent, else float.",
    )

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        conflicts = [*self._without_event_time(), *self._over_needs_a_floor(), *self._topics_differ(), *self._policies_hold()]
        if conflicts:
            raise Contradiction(conflicts)
        return self

    def unused(self) -> set[str]:
        """Return the settings that mean nothing for this input: without ``timestamp_by`` all that judge event time."""
        return set() if self.timestamp_by is not None else set(_EVENT_TIME_SETTINGS)

    def _without_event_time(self) -> list[tuple[str, str, str]]:
        given = sorted(name.removesuffix("_us") for name in self.model_fields_set)
        useless = [name for name in given if name in self.unused()]
        return [(name, f"{name} means nothing without timestamp_by", f"set timestamp_by, or remove {name}") for name in useless]

    def _over_needs_a_floor(self) -> list[tuple[str, str, str]]:
        if self.over is None or self.late_us is not None:
            return []
        return [("late", 'late = "off" cannot stand with over', "give late a duration up to 20d: only it lets silent substreams advance")]

    def _topics_differ(self) -> list[tuple[str, str, str]]:
        taken = {"topic": set(self.topics), "ordered_topic": {self.ordered_topic}}
        conflicts = []
        if self.ordered_topic in self.topics:
            conflicts.append(
                ("ordered_topic", f"{self.ordered_topic} is both read and written", "give the ordered topic a name of its own")
            )
        for key, names in taken.items():
            if self.dead_letter_topic in names:
                conflicts.append(
                    ("dead_letter_topic", f"{self.dead_letter_topic} is the {key} too", "give the dead-letter topic a name of its own")
                )
        return conflicts

    def _policies_hold(self) -> list[tuple[str, str, str]]:
        try:
            self.policies()
        except TidegateError as error:
            return [(error.where or "late", error.what, error.fix)]
        return []

    def policies(self) -> Policies:
        """Return the time policies; without ``timestamp_by`` those of arrival order."""
        if self.timestamp_by is None:
            return Policies.arrival_order()
        return Policies(
            early_us=self.early_us,
            late_us=self.late_us,
            late_action=Action(self.late_action),
            reorder_us=self.reorder_us,
            out_of_order_action=Action(self.out_of_order_action),
        )

    def fingerprint(self) -> dict[str, str]:
        """
        Return in canonical text what is bound to a checkpoint: with another value the ordered topic would differ.

        ``output_partitions`` is empty when it follows the input; what was then made is fixed by the topic itself.
        """
        policies = self.policies()
        return {
            "topic": ",".join(sorted(self.topics)),
            "ordered_topic": self.ordered_topic,
            "output_partitions": "" if self.output_partitions is None else str(self.output_partitions),
            "format": self.format,
            "arrival": self.arrival,
            "timestamp_by": self.timestamp_by or "",
            "timestamp_format": self.timestamp_format,
            "over": self.over or "",
            "early": _or_off(policies.early_us),
            "late": _or_off(policies.late_us),
            "late_action": policies.late_action.value,
            "reorder": format_duration(policies.reorder_us),
            "out_of_order_action": policies.out_of_order_action.value,
        }


def _or_off(duration_us: int | None) -> str:
    return "off" if duration_us is None else format_duration(duration_us)


class OutputSettings(Table):
    """[outputs.NAME]: where results go: an ordered result topic, files, or both."""

    name: str = Field(default="", alias="__name__", exclude=True)
    topic: Annotated[Topic | None, Kind("topic name; default: none")] = Field(
        default=None, description="Ordered result topic; made when missing."
    )
    partitions: Annotated[Count | None, Kind("count; default: as many as the ordered topic read")] = Field(
        default=None, description="Partitions of the result topic; fixed once it is made."
    )
    replication_factor: Count = Field(default=1, description="Copies of each partition of topics that are made.")
    retention_us: DurationOrForever = Field(
        default=None, description="How long the result topic keeps results, measured by System.Timestamp."
    )
    files: Annotated[str | None, Kind("folder; default: none")] = Field(
        default=None, description="Folder for result files; made when missing."
    )
    file_format: Literal["ndjson", "parquet"] = Field(default="ndjson", description="Format of the files.")
    file_span_us: Duration = Field(
        default=MINUTE_US, description="System.Timestamp span one file covers; a file appears once its span is final."
    )

    @model_validator(mode="after")
    def _hold_together(self) -> Self:
        conflicts = []
        if self.topic is None and self.files is None:
            conflicts.append(
                (
                    "",
                    "an output needs a topic or files",
                    f'add topic = "{self.name or "results"}" or files = "out/{self.name or "results"}"',
                )
            )
        if self.topic is None and self.partitions is not None:
            conflicts.append(("partitions", "partitions means nothing without topic", "set topic, or remove partitions"))
        if self.file_span_us < MILLISECOND_US:
            conflicts.append(("file_span", "file_span is too short", "give 1ms or more"))
        if conflicts:
            raise Contradiction(conflicts)
        return self


class QuerySettings(Table):
    """[query]: what all queries may ask for."""

    window_max_us: Duration = Field(
        default=7 * DAY_US, description="Longest window a query may have; its events are kept as state for that long."
    )
    max_events_per_batch: Count = Field(default=1_000_000, description="Most events one batch of a query reads, over all partitions.")


class MetricsSettings(Table):
    """[metrics]: the numbers a job publishes."""

    port: Annotated[int, Field(ge=0, le=65535), Kind("TCP port")] = Field(
        default=0, description="Port for Prometheus on this machine; 0: off."
    )


class LoggingSettings(Table):
    """[logging]: what a job says while it runs."""

    format: Literal["auto", "console", "json"] = Field(default="auto", description="auto: for people on a terminal, JSON lines elsewhere.")
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The least grave events shown.")
