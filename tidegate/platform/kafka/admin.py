"""
Asks the brokers about topics and offsets, and creates topics.

Law: every call has a time limit. If no broker answers, it raises :class:`UnreachableError` with the address and, if known, the reason;
for missing rights see :mod:`tidegate.platform.kafka.failures`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from ordering.errors import RefusedError, SettingError, TidegateError, UnreachableError
from ordering.ticks import SECOND_US
from tidegate.basics.access_rights import Right
from tidegate.basics.secret_masking import scrub
from tidegate.basics.unnamed_servers import warn_of_unnamed
from tidegate.platform.kafka.client_properties import PRODUCER, STEADY
from tidegate.platform.kafka.failures import LastError, error_text, is_hopeless, kafka_denial, kafka_failure, speaks_tls
from tidegate.platform.kafka.own_cluster import check_own_cluster
from tidegate.platform.settings.kinds import NotAllowed, parse_topic
from tidegate.platform.settings.tables.kafka import KafkaSettings

_T = TypeVar("_T")
_spec: Any = OffsetSpec  # its constructors carry no types
LATEST, EARLIEST, MAX_TIMESTAMP = _spec.latest(), _spec.earliest(), _spec.max_timestamp()

# Record timestamps are times of events or results, of any age and perhaps to come; by default brokers refuse what is an hour ahead.
ANY_TIMESTAMP_CONFIG = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "message.timestamp.before.max.ms": str(2**63 - 1),
}

# Settings of an ordered topic (PROTOCOL.md).
ORDERED_TOPIC_CONFIG = {
    **ANY_TIMESTAMP_CONFIG,
    "cleanup.policy": "delete",
    "unclean.leader.election.enable": "false",
}

HEADER_ROOM_BYTES = 4096  # most extra bytes of a record in the ordered topic, compared with the raw topic

_NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,  # so librdkafka answers for a topic without leader, and for one that it may not see
}
_NO_ANSWER = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
}
_HANDLED_BY_CALLERS = {*_NO_LEADER, KafkaError.TOPIC_ALREADY_EXISTS}
# How long a running job waits for an answer, seconds.
ANSWER_S = 5.0
_TRY_S = 1.0
# How long a refused connection or an unknown name is tried again, seconds; the same as in :mod:`tidegate.platform.redis_client`.
REFUSED_S = 1.0
_CREATED_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the brokers describe it. ``topic_id`` changes if a topic is deleted and made again."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, str]

    @property
    def all_partitions(self) -> list[tuple[str, int]]:
        """Each of its partitions as the topic's name and its number."""
        return [(self.name, number) for number in range(self.partitions)]

    @property
    def uses_log_append_time(self) -> bool:
        """Whether record timestamps come from the broker's clock, not from producers."""
        return self.config.get("message.timestamp.type") == "LogAppendTime"


class Admin:
    """One admin client; *timeout_s* limits the wait for each answer, seconds. Raises SettingError: librdkafka rejects the properties."""

    def __init__(self, properties: Mapping[str, str], timeout_s: float = 10.0) -> None:
        self.bootstrap, self._timeout_s = properties["bootstrap.servers"], timeout_s
        self._properties, self._last_error = properties, LastError(properties)
        self._has_connected = False
        own: dict[str, Any] = {"log_level": 2, "error_cb": self._last_error.record}
        try:
            self._client = AdminClient({**STEADY, **properties, **own})
        except (KafkaException, TypeError, ValueError) as error:
            raise _client_error(error) from None

    @classmethod
    def connect(cls, kafka: KafkaSettings, *, deletes: bool = False) -> Admin:
        """
        Return a client of brokers that answer; *deletes*: to delete what is there. Raises as :meth:`check_reachable`; RefusedError: it
        deletes, and the brokers are not those of this folder's stack (TG-STACK-OTHER).
        """
        admin = cls(kafka.client_properties(), kafka.connect_timeout_us / SECOND_US)
        admin.check_reachable()
        warn_of_unnamed(kafka, "bootstrap", "Kafka", kafka.bootstrap)
        check_own_cluster(kafka.bootstrap, admin.cluster_id, deletes=deletes)
        return admin

    def cluster_id(self) -> str:
        """Return the id of the cluster that answers; empty if its brokers tell none."""
        return str(self._await_answer(self._client.describe_cluster(), "Describe", "").cluster_id or "")

    def check_reachable(self) -> None:
        """
        Return when a broker answers. Raises UnreachableError: none does within the time limit, or within a second if the connection is
        refused or the name unknown (TG-KAFKA-UNREACHABLE); at once: the login (TG-KAFKA-AUTH) or a certificate (TG-KAFKA-TLS) is rejected.
        """
        deadline_s = time.monotonic() + self._timeout_s
        refused_until_s = min(time.monotonic() + REFUSED_S, deadline_s)
        # Short attempts: a rejected login is then raised early. Only poll delivers librdkafka's error to error_cb.
        while (left_s := deadline_s - time.monotonic()) > _TRY_S:
            try:
                self._client.list_topics(timeout=_TRY_S)
            except KafkaException:
                self._client.poll(0)
                if (failure := self._last_error.hopeless_failure()) is not None:
                    raise failure from None
                if time.monotonic() >= refused_until_s and self._last_error.is_refusal():
                    left_s = 0.0
                    break
            else:
                return
        self._call(lambda: self._client.list_topics(timeout=max(left_s, 0.1)))

    def find(self, name: str) -> Topic | None:
        """Return the topic, None if there is none. Raises SettingError (TG-TOPIC-NAME): Kafka allows no topic of that name."""
        try:
            parse_topic(name)
        except NotAllowed as error:
            what, fix = f"no topic can be called {name!r}", f"allowed: {error}"
            raise SettingError(what, code="TG-TOPIC-NAME", where=name, fix=fix) from None
        described = self._description(self._client.describe_topics(TopicCollection([name]))[name], name)
        if described is None:
            return None
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            entries = self._await_answer(self._client.describe_configs([resource])[resource], "DescribeConfigs", name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:  # deleted between the two answers
                return None
            raise
        config = {key: str(entry.value) for key, entry in entries.items()}
        return Topic(name, str(described.topic_id), len(described.partitions), config)

    def _description(self, future: Future[Any], name: str) -> Any:
        """Return the brokers' description of a topic, None if there is no such topic."""
        try:
            return self._await_answer(future, "Describe", name)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    def partition_counts(self) -> dict[str, int]:
        """Return the number of partitions of each topic that this client may see."""
        metadata = self._call(lambda: self._client.list_topics(timeout=self._timeout_s))
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """Return the id of each topic, empty if there is none of that name."""
        futures = self._client.describe_topics(TopicCollection(list(names)))
        descriptions = {name: self._description(future, name) for name, future in futures.items()}
        return {name: "" if described is None else str(described.topic_id) for name, described in descriptions.items()}

    def require(self, name: str, fix: str = "") -> Topic:
        """Return the topic. Raises RefusedError: there is none; *fix* is its advice (default: create it)."""
        topic = self.find(name)
        if topic is None:
            known = sorted(topic for topic in self.partition_counts() if not topic.startswith("__"))
            fix = fix or f"create it (a raw topic: tidegate topic create {name})" + (
                f", or name one of: {', '.join(known[:10])}" if known else ""
            )
            raise RefusedError(f"there is no topic {name!r} on {self.bootstrap}", code="TG-TOPIC-MISSING", where=name, fix=fix)
        return topic

    def check_rights(self, rights: Iterable[Right]) -> None:
        """
        Ask the brokers whether this client has *rights* on existing topics; the right to create them is skipped.

        Without this check a missing right shows only at the first read or write, or not at all. Raises RefusedError: a right is missing
        (TG-KAFKA-DENIED).
        """
        wanted = [right for right in rights if right.operation != "Create"]
        for topic in dict.fromkeys(right.topic for right in wanted):
            futures = self._client.describe_topics(TopicCollection([topic]), include_authorized_operations=True)
            allowed = self._await_answer(futures[topic], "Describe", topic).authorized_operations
            names = {str(operation.name).replace("_", "").lower() for operation in allowed or ()}
            for right in wanted:
                # Some brokers do not list the operations; then the operation itself will fail.
                if names and right.topic == topic and right.operation.lower() not in names:
                    raise kafka_denial(right, self._properties)

    def create(self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int = 1) -> Topic:
        """Create a topic unless it exists; return it when the brokers show it. Raises UnreachableError: not within the time limit."""
        new = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor, config=dict(config))
        try:
            self._await_answer(self._client.create_topics([new])[name], "Create", name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        # The controller answers before every broker knows the topic.
        deadline_s = time.monotonic() + self._timeout_s
        while (topic := self.find(name)) is None or topic.partitions == 0:
            if time.monotonic() > deadline_s:
                what = f"topic {name} was created, but the brokers do not show it yet"
                fix = "look at the brokers' logs; starting again uses the topic"
                raise UnreachableError(what, code="TG-KAFKA-UNREACHABLE", where=name, fix=fix)
            time.sleep(_CREATED_PAUSE_S)
        return topic

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics that are there; return when the brokers show them no more. Raises UnreachableError: not within the time limit."""
        for name in names:
            self._await_answer(self._client.delete_topics([name])[name], "Delete", name)
        deadline_s = time.monotonic() + self._timeout_s
        while shown := [name for name in names if self.find(name) is not None]:
            if time.monotonic() > deadline_s:
                what, fix = f"topic {shown[0]} was deleted, but the brokers show it still", "do it again when they are less busy"
                raise UnreachableError(what, code="TG-KAFKA-UNREACHABLE", where=shown[0], fix=fix)
            time.sleep(_CREATED_PAUSE_S)

    def ensure(self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int) -> Topic:
        """Return the topic, created if missing; an existing one needs no right to create."""
        return self.find(name) or self.create(name, partitions, config, replication_factor)

    def ensure_ordered_topic(
        self, name: str, partitions: int, retention_us: int | None, record_bytes_max: int, replication_factor: int = 1, setting: str = ""
    ) -> Topic:
        """
        Return the ordered topic, created if missing, with the settings of PROTOCOL.md.

        Args:
            retention_us: How long events are retained, by system timestamp; None: for ever.
            record_bytes_max: Largest record of the topic that it is made from.
            setting: The setting that chooses the number of partitions; empty: the query decides it.

        Raises:
            RefusedError: It exists with another number of partitions, or with settings that would lose or refuse events.
        """
        wanted = {
            **ORDERED_TOPIC_CONFIG,
            "retention.ms": "-1" if retention_us is None else str(retention_us // 1000),
            # Kafka applies this limit to batches, compressed or not.
            "max.message.bytes": str(max(record_bytes_max, int(PRODUCER["batch.size"])) + HEADER_ROOM_BYTES),
        }
        topic = self.ensure(name, partitions, wanted, replication_factor)
        if topic.partitions != partitions:
            what = f"topic {name} has {topic.partitions} partitions, and it should have {partitions}"
            ways = f"set {setting} = {topic.partitions}, or " if setting else ""
            fix = f"{ways}name a topic that is not there yet: N is fixed, since keys would move"
            raise RefusedError(what, code="TG-TOPIC-PARTITIONS", where=name, fix=fix)
        wrong_keys = [key for key, value in wanted.items() if not _is_satisfied(key, topic.config.get(key, ""), value)]
        if wrong_keys:
            what = f"topic {name} has {', '.join(f'{key}={topic.config.get(key)}' for key in wrong_keys)}"
            fix = f"set {', '.join(f'{key}={wanted[key]}' for key in wrong_keys)} on the topic, or name a topic that is not there yet"
            raise RefusedError(what, code="TG-TOPIC-CONFIG", where=name, fix=fix)
        return topic

    def offsets(self, partitions: Iterable[tuple[str, int]], spec: OffsetSpec, committed: bool = True) -> dict[tuple[str, int], Any]:
        """Return each partition's offset (with timestamp) for *spec*; *committed* ends at open transactions."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(*partition): spec for partition in partitions}
        if wanted and not self._has_connected:
            # When librdkafka has its first metadata it closes the connection to the bootstrap server. A question about leaders that is
            # under way there is lost, and list_offsets repeats it only after three seconds.
            self._learn_leaders()

        def ask() -> dict[tuple[str, int], Any]:
            futures = self._client.list_offsets(wanted, isolation_level=level, request_timeout=self._timeout_s)
            failures = (future.exception(self._timeout_s + 5) for future in futures.values())
            if any(isinstance(failure, KafkaException) and failure.args[0].code() == KafkaError._NOENT for failure in failures):
                self.check_rights(Right("Describe", partition.topic) for partition in wanted)
            offsets = {asked: self._await_answer(future, "Describe", asked.topic) for asked, future in futures.items()}
            return {(asked.topic, asked.partition): offset for asked, offset in offsets.items()}

        # A new topic, or one whose leader moves, has no leader for a moment.
        retry_until_led = Retrying(
            retry=retry_if_exception(_is_passing),
            stop=stop_after_delay(self._timeout_s),
            wait=wait_fixed(0.1),
            before_sleep=lambda _: self._learn_leaders(),
            reraise=True,
        )
        try:
            return retry_until_led(ask) if wanted else {}
        except UnreachableError:
            # A client that does not know the leaders fails in the same way: the next call shall know them.
            self._learn_leaders()
            raise

    def _learn_leaders(self) -> None:
        # librdkafka requests offsets with the leader epoch it knows. If a broker has lost a partition and regained it, these requests are
        # refused for minutes, until the metadata is refreshed.
        with suppress(KafkaException):
            self._client.list_topics(timeout=_TRY_S)
            self._has_connected = True

    def ends(self, partitions: Iterable[tuple[str, int]], committed: bool = True) -> dict[tuple[str, int], int]:
        """Return the offset after the last record of each partition."""
        return {partition: offset.offset for partition, offset in self.offsets(partitions, LATEST, committed).items()}

    def starts(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the first available offset of each partition."""
        return {partition: offset.offset for partition, offset in self.offsets(partitions, EARLIEST).items()}

    def offsets_from(self, partitions: Iterable[tuple[str, int]], time_us: int) -> dict[tuple[str, int], int]:
        """Return the first offset of each partition with a record timestamp at or above *time_us*; its end if there is none."""
        wanted = list(partitions)
        return {**self.ends(wanted), **self.offsets_at(wanted, max(time_us // 1000, 0))}

    def offsets_at(self, partitions: Iterable[tuple[str, int]], time_ms: int) -> dict[tuple[str, int], int]:
        """Return the first offset with a record timestamp at or above *time_ms*, without partitions that have no such record."""
        offsets = self.offsets(partitions, OffsetSpec.for_timestamp(time_ms))
        return {partition: first.offset for partition, first in offsets.items() if first.offset >= 0}

    def _await_answer(self, future: Future[_T], operation: str, topic: str) -> _T:
        return self._call(lambda: future.result(timeout=self._timeout_s + 5), operation, topic)

    def _call(self, ask: Callable[[], _T], operation: str = "", topic: str = "") -> _T:
        """Return the answer; errors that callers handle pass unchanged, others become errors of Tidegate."""
        try:
            answer = ask()
        except KafkaException as error:
            failure = error.args[0]
            if failure.code() in _HANDLED_BY_CALLERS:
                raise
            if failure.code() in _NO_ANSWER:
                raise self._unreachable_error() from error
            raise kafka_failure(failure, topic or self.bootstrap, operation, properties=self._properties) from error
        except TimeoutError as error:
            raise self._unreachable_error() from error
        self._last_error.clear()
        return answer

    def _unreachable_error(self) -> TidegateError:
        self._client.poll(0)
        why = ""
        if self._last_error.error is not None:
            why = f": {error_text(self._last_error.error)}"
        elif not self._properties.get("security.protocol", "plaintext").lower().endswith("ssl") and speaks_tls(self._properties):
            why = ": it speaks TLS, and security.protocol does not say so"
        what, where = f"no Kafka broker answers at {self.bootstrap}{why}", self.bootstrap
        fix = "start one with `tidegate up`, or set kafka.bootstrap (and [kafka.client] for TLS or SASL)"
        silence = UnreachableError(what, code="TG-KAFKA-UNREACHABLE", where=where, fix=fix, example='bootstrap = "localhost:9092"')
        return self._last_error.hopeless_failure() or silence


def check_readable(topic: Topic, *, is_ordered: bool) -> None:
    """
    Raise RefusedError (TG-TOPIC-CONFIG) if a replay of a topic could not find all of its records. A compacted topic loses records in the
    middle of its log. An ordered topic with the broker's timestamps cannot be searched by System.Timestamp.
    """
    policy = topic.config.get("cleanup.policy", "")
    wrong = {"cleanup.policy": policy} if "compact" in policy else {}
    if is_ordered and topic.uses_log_append_time:
        wrong["message.timestamp.type"] = "LogAppendTime"
    if wrong:
        what = f"topic {topic.name} has {', '.join(f'{key}={value}' for key, value in wrong.items())}: not all would be found again"
        wanted = ", ".join(f"{key}={ORDERED_TOPIC_CONFIG[key]}" for key in wrong)
        fix = f"set {wanted} on the topic, if it has only just been changed; else read a copy of it that is not set up so"
        raise RefusedError(what, code="TG-TOPIC-CONFIG", where=topic.name, fix=fix)


def raise_if_hopeless(properties: Mapping[str, str], right: Right) -> None:
    """Raise TidegateError if waiting is hopeless: a right, a login or a certificate is refused (TG-KAFKA-DENIED, -AUTH, -TLS)."""
    try:
        admin = Admin(properties, 5 * _TRY_S)
        admin.check_reachable()
        admin.check_rights([right])
    except (KafkaException, TidegateError) as error:
        if is_hopeless(error):
            raise


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _NO_LEADER


def _is_satisfied(key: str, there: str, wanted: str) -> bool:
    if key == "retention.ms":
        return there == "-1" or (wanted != "-1" and int(there) >= int(wanted))
    if key == "max.message.bytes" or key.endswith(".max.ms"):
        return int(there or 0) >= int(wanted)
    return there == wanted


def _client_error(error: Exception) -> SettingError:
    reason = error.args[0]
    what = f"[kafka.client] cannot be used: {error_text(reason) if isinstance(reason, KafkaError) else scrub(str(error))}"
    fix = "correct the property: librdkafka's documentation lists them (CONFIGURATION.md)"
    return SettingError(what, code="TG-KAFKA-CLIENT", where="kafka.client", fix=fix, example='"security.protocol" = "SASL_SSL"')
