"""
How large the results of each output may be, and the plain topics that take them.

Law: the size is determined when a run begins, and its checkpoint is bound to it, so a repeated batch leaves out the same results. The
topics must take such results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ordering.errors import RefusedError
from query.start.survey import TopicSurvey
from tidegate.platform.kafka.admin import ANY_TIMESTAMP_CONFIG, HEADER_ROOM_BYTES, Admin, Topic
from tidegate.platform.kafka.client_properties import EVENT_BYTES_MAX
from tidegate.platform.settings.tables.outputs import OutputSettings

# The name of the sizes in a checkpoint's binding.
RESULT_BYTES_MAX = "result_bytes_max"
# Most extra bytes of a record in a plain topic.
PLAIN_ROOM_BYTES = 256

# Kafka's default of max.message.bytes.
_RECORD_BYTES = 1_048_588


def result_limits(outputs: Sequence[OutputSettings], topics: TopicSurvey, binding: Mapping[str, str] | None) -> tuple[int | None, ...]:
    """Return for each output the most bytes of a result's key and value together; None: it has no topic, and files take any size."""
    if binding is not None:
        return tuple(json.loads(binding[RESULT_BYTES_MAX]))
    events = (_limit(topic) - HEADER_ROOM_BYTES for topic in topics.ordered.values())
    wanted = min(max(*events, _RECORD_BYTES), EVENT_BYTES_MAX)
    return tuple(_result_limit(output, topics, wanted) for output in outputs)


def _result_limit(output: OutputSettings, topics: TopicSurvey, wanted: int) -> int | None:
    if output.topic is None and output.plain_topic is None:
        return None
    plain = topics.results.get(output.plain_topic or "")
    # A result topic with a smaller limit is refused. A plain topic belongs to others, so its own limit counts.
    return wanted if plain is None else min(wanted, max(_limit(plain) - PLAIN_ROOM_BYTES, 0))


def ensure_plain_topic(admin: Admin, output: OutputSettings, partitions: int, bytes_max: int) -> Topic:
    """Return an output's plain topic, created if missing; one that is there must take results of *bytes_max* bytes (RefusedError)."""
    assert output.plain_topic is not None
    retention = {"retention.ms": "-1"} if output.retention_us is None else {}
    limit = {"max.message.bytes": str(bytes_max + PLAIN_ROOM_BYTES)}
    topic = admin.ensure(output.plain_topic, partitions, {**ANY_TIMESTAMP_CONFIG, **retention, **limit}, output.replication_factor)
    check_plain_topic(topic, bytes_max)
    return topic


def check_plain_topic(topic: Topic, bytes_max: int) -> None:
    """Raise RefusedError if a plain topic no longer takes results of *bytes_max* bytes."""
    if _limit(topic) < bytes_max + PLAIN_ROOM_BYTES and bytes_max:
        what = f"topic {topic.name} has max.message.bytes={_limit(topic)}, less than when the run began"
        fix = f"set max.message.bytes={bytes_max + PLAIN_ROOM_BYTES} on the topic, or name a topic that is not there yet"
        raise RefusedError(what, code="TG-TOPIC-CONFIG", where=topic.name, fix=fix)


def _limit(topic: Topic) -> int:
    return int(topic.config.get("max.message.bytes", _RECORD_BYTES))
