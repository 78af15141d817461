"""
What an ordered topic is made of: the journal remembers it, for a start that finds the topic without its checkpoint.

Law: events judged under two settings, or of two topics of one name, never mix in an ordered topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal
from ingest.journal.topic_identity import WAYS_OUT
from ingest.offsets import parse_partition, partition_name
from ordering.errors import RefusedError
from tidegate.checkpoint.binding import check_same_topics, differences
from tidegate.checkpoint.output_start import Start
from tidegate.kafka.admin import Topic
from tidegate.observe.logs import get_logger

MAY_GROW = ("input_partitions", "topic_ids")
"""What an ordered topic is made of at least: partitions, and topics of a pattern, may be added."""
MAY_APPEAR = ("record_bytes_max",)
"""What topics made by earlier versions do not tell."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TopicOrigin:
    """
    How an ordered topic was begun.

    Args:
        starts: The first offset of each input partition it was begun from; empty: not known.
        start: Its output start; None: not known.
    """

    starts: Mapping[Partition, int]
    start: Start | None


def check_fingerprint(
    plan: IngestPlan,
    journal: RedisJournal,
    ordered: Topic,
    fingerprint: Mapping[str, str],
    start: Start,
    *,
    has_events: bool,
    has_checkpoint: bool,
) -> TopicOrigin:
    """
    Compare what the ordered topic is made of with what the journal says; without a checkpoint nothing else tells.

    Args:
        plan: The job.
        journal: The journal.
        ordered: The ordered topic.
        made_of: The settings that shape its events, and the ids of the topics.
        start: The output start with which it is begun, if it is begun now.
        has_events: Whether something was written to it.
        has_checkpoint: Whether its checkpoint is there.

    Returns:
        How it was begun, as far as that is known.

    Raises:
        RefusedError: It was made under other settings, or from topics that were deleted and made again.
    """
    # Of a topic that was begun before nobody knows any more which offsets came first, nor where it starts to tell.
    founders = [] if has_events else [partition for partition in plan.partitions if partition not in plan.joins]
    starts = {partition_name(partition): plan.starts[partition].next_offset for partition in founders}
    fields: dict[str, Any] = {"settings": fingerprint, "starts": starts}
    if not has_events:
        fields["start"] = asdict(start)
    stored, is_first = journal.read_or_set_fingerprint(
        ordered.name, ordered.topic_id, json.dumps(fields, sort_keys=True), begins_anew=not has_events
    )
    known = json.loads(stored)
    if has_events and not has_checkpoint:
        if is_first:
            _log.warning("the journal does not know the ordered topic: its settings cannot be compared", topic=ordered.name)
        _compare_settings(ordered.name, known["settings"], fingerprint)
    # The journal of earlier versions knows of no start: there was none.
    first_start = None if is_first and has_events else Start(**known.get("start", {}))
    return TopicOrigin({parse_partition(name): first for name, first in known["starts"].items()}, first_start)


def _compare_settings(ordered: str, known: Mapping[str, str], current: Mapping[str, str]) -> None:
    ids = json.loads(known.get("topic_ids", "{}")), json.loads(current.get("topic_ids", "{}"))
    check_same_topics(*ids, ordered, WAYS_OUT)
    changed = differences(known, current, MAY_GROW, MAY_APPEAR)
    if changed:
        raise RefusedError(
            f"ordered topic {ordered} was made under other settings: {'; '.join(changed)}",
            code="TG-TOPIC-SETTINGS",
            where=ordered,
            fix="set them back, or write to a new ordered topic (set ordered_topic): events judged by two policies must not mix",
        )
