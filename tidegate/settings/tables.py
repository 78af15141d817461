"""
The tables of ``tidegate.toml``: one frozen class each, every setting with its default, its unit and what it means.

Law: a value that exists is usable: each setting was checked by its kind, and the settings of one table against each
other. A field whose name ends in ``_us`` is written without that ending, as a duration with a unit of its own.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from ordering.errors import TidegateError
from ordering.protocol.frontier import Pace
from ordering.ticks import DAY_US, MILLISECOND_US, MINUTE_US, SECOND_US
from tidegate.secret_masking import Secrets, has_password, scrub
from tidegate.settings.types import (
    Bootstrap,
    Duration,
    DurationOrForever,
    Kind,
    NotAllowed,
    Properties,
    RedisUrl,
    Secret,
    Topic,
    reveal_properties,
)

FieldType = Literal["bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array"]
Count = Annotated[int, Field(ge=1), Kind("count")]

FIXED_CLIENT_PROPERTIES = {
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


def _refuse_fixed_properties(client: dict[str, SecretStr]) -> dict[str, SecretStr]:
    owned = [(key, f"{key} is not yours to set", FIXED_CLIENT_PROPERTIES[key]) for key in client if key in FIXED_CLIENT_PROPERTIES]
    if owned:
        raise Contradiction(owned)
    return client


class KafkaSettings(Table):
    """[kafka]: the brokers and how to reach them."""

    bootstrap: Bootstrap = Field(default="localhost:9092", description="Brokers asked first; the rest of the cluster is learned from them.")
    connect_timeout_us: Duration = Field(default=8 * SECOND_US, description="How long to wait for a broker before giving up with an error.")
    client: Annotated[Properties, AfterValidator(_refuse_fixed_properties)] = Field(
        default_factory=dict,
        description="Any librdkafka property, such as security.protocol; secrets as file:PATH or env:NAME.",
    )
    native: Literal["auto", "off"] = Field(
        default="auto",
        description="auto: whole columns at a time, where the native part was compiled at installation; off: record by record, slower.",
    )

    def client_properties(self) -> Secrets:
        """Return librdkafka properties for any client, secrets included: bootstrap.servers and [kafka.client]."""
        return Secrets({"bootstrap.servers": self.bootstrap, **reveal_properties(self.client)})


class _CertificateFiles(Protocol):
    """What of a table tells how a server is met over TLS: paths of PEM files."""

    @property
    def ca_file(self) -> str | None: ...
    @property
    def certificate_file(self) -> str | None: ...
    @property
    def key_file(self) -> str | None: ...


def tls_conflicts(table: _CertificateFiles, scheme: str, encrypted: bool) -> list[tuple[str, str, str]]:
    """Return what does not hold together among certificate files, where only a URL of *scheme* is *encrypted*."""
    conflicts = []
    given = [name for name in ("ca_file", "certificate_file", "key_file") if getattr(table, name)]
    if given and not encrypted:
        conflicts.append((given[0], f"{given[0]} means nothing without TLS", f"write {scheme} in url, or remove it"))
    if bool(table.certificate_file) != bool(table.key_file):
        named, other = ("certificate_file", "key_file") if table.certificate_file else ("key_file", "certificate_file")
        conflicts.append((named, f"{named} is of no use without {other}", f"give {other} as well"))
    return conflicts


class RedisSettings(Table):
    """[redis]: the journal and what tools read."""

    url: RedisUrl = Field(
        default=SecretStr("redis://localhost:6379/0"), description="Where Redis or Valkey answers; a password in it is never shown."
    )
    username: str | None = Field(default=None, description="User of Redis's ACL, if the URL names none.")
    password: Secret = Field(default=None, description="Password, if the URL has none.")
    ca_file: Annotated[str | None, Kind("path of a PEM file; default: the system's")] = Field(
        default=None, description="Whose certificates are trusted; of rediss:// only."
    )
    certificate_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Certificate shown to the server, with those that signed it; of rediss:// only."
    )
    key_file: Annotated[str | None, Kind("path of a PEM file; default: none")] = Field(
        default=None, description="Private key of certificate_file."
    )
    key_password: Secret = Field(default=None, description="Password of key_file.")
    connect_timeout_us: Duration = Field(default=8 * SECOND_US, description="How long to wait for Redis before giving up with an error.")
    journal_durability: Literal["disk", "memory"] = Field(
        default="disk",
        description="disk: an estimate is used only once on the disk of Redis; memory: a crash of Redis may lose some (warned about).",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        conflicts = []
        if self.password is not None and has_password(self.connection_url()):
            conflicts.append(("password", "there is a password in url too", "give one of them"))
        conflicts += tls_conflicts(self, "rediss://", encrypted=self.connection_url().startswith("rediss://"))
        if conflicts:
            raise Contradiction(conflicts)
        return self

    def connection_url(self) -> str:
        """Return the URL with its password, for the client. Never log it."""
        return self.url.get_secret_value()

    def client_options(self) -> Secrets:
        """Return what the client is told beside the URL, secrets included."""
        options = {
            "username": self.username,
            "password": _reveal_secret(self.password),
            "ssl_ca_certs": self.ca_file,
            "ssl_certfile": self.certificate_file,
            "ssl_keyfile": self.key_file,
            "ssl_password": _reveal_secret(self.key_password),
        }
        return Secrets({name: text for name, text in options.items() if text})

    @property
    def address(self) -> str:
        """The URL as it may be shown, without its password."""
        return scrub(self.connection_url())


def _reveal_secret(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


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
    allocator: Literal["auto", "off"] = Field(
        default="auto",
        description="auto: workers allocate memory by jemalloc where the machine has it, a third less CPU; off: as the machine is set up.",
    )
    conf: Properties = Field(default_factory=dict, description="Any Spark property, passed on as it is; secrets as file:PATH or env:NAME.")
    checkpoint_dir: str = Field(
        default=".tidegate/checkpoints", description="Folder (or URL) of the checkpoints; one folder in it for each job."
    )

    def properties(self) -> Secrets:
        """Return [spark.conf] with its secrets, for the session builder."""
        return Secrets(reveal_properties(self.conf))


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise NotAllowed("letters, digits and _, not starting with a digit: queries use it as a name")
    return name


Name = Annotated[str, AfterValidator(_check_name)]
"""The name of an input or output, as queries say it."""


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
        default=MINUTE_US,
        description="System.Timestamp span one file, or one transaction of plain_topic, covers; it appears once it is final.",
    )
    plain_topic: Annotated[Topic | None, Kind("topic name; default: none")] = Field(
        default=None,
        description="Topic for consumers who know nothing of Tidegate: results alone, a transaction for each span; made when missing.",
    )
    sink: Annotated[str | None, Kind("name; default: none")] = Field(
        default=None, description="A further destination: console, or one that an installed package offers."
    )
    sink_options: dict[str, str] = Field(default_factory=dict, description="What that destination is told.")
    cti_every_events: Annotated[Count | None, Kind("count; default: each CTI of the input")] = Field(
        default=None, description="The query heeds a channel's CTI only after so many events of it; whatever its input's settings are."
    )
    cti_every_us: Annotated[Duration | None, Kind("duration; default: each CTI of the input")] = Field(
        default=None,
        description="The query heeds a channel's CTI only when it enters another span of this length, counted from 1970.",
    )
    cti_delay_us: Duration = Field(default=0, description="How far the query's progress stays behind the CTIs of its input.")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        conflicts = []
        if self.topic is None and not self.writes_sheets:
            conflicts.append(
                (
                    "",
                    "an output needs a topic, files or a sink",
                    f'add topic = "{self.name or "results"}" or files = "out/{self.name or "results"}"',
                )
            )
        if self.topic is None and self.partitions is not None:
            conflicts.append(("partitions", "partitions means nothing without topic", "set topic, or remove partitions"))
        if self.file_span_us < MILLISECOND_US:
            conflicts.append(("file_span", "file_span is too short", "give 1ms or more"))
        conflicts += self._pace_conflicts()
        if conflicts:
            raise Contradiction(conflicts)
        return self

    def _pace_conflicts(self) -> list[tuple[str, str, str]]:
        try:
            self.pace()
        except TidegateError as error:
            return [(error.where, error.what, error.fix)]
        return []

    @property
    def writes_sheets(self) -> bool:
        """Whether results go anywhere span by span."""
        return not (self.files is None and self.plain_topic is None and self.sink is None)

    def pace(self) -> Pace:
        """Return how often the query that writes here takes notice of its input's CTIs."""
        return Pace(self.cti_every_events, self.cti_every_us, self.cti_delay_us)


class QuerySettings(Table):
    """[query]: what all queries may ask for."""

    window_max_us: Duration = Field(
        default=7 * DAY_US, description="Longest window a query may have; its events are kept as state for that long."
    )
    max_events_per_batch: Count = Field(default=2_500_000, description="Most events one batch of a query reads, over all partitions.")


class MetricsSettings(Table):
    """[metrics]: the numbers a job publishes."""

    port: Annotated[int, Field(ge=0, le=65535), Kind("TCP port")] = Field(
        default=0, description="Port at which Prometheus fetches them; 0: off. Each job on a machine needs one of its own."
    )
    host: str = Field(
        default="127.0.0.1", description="Address that the port is opened at; 0.0.0.0: all of this machine's, for anybody who reaches it."
    )


class LoggingSettings(Table):
    """[logging]: what a job says while it runs."""

    format: Literal["auto", "console", "json"] = Field(default="auto", description="auto: for people on a terminal, JSON lines elsewhere.")
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="The least grave events shown.")
