"""
The fingerprint of an ordered topic, kept in the journal for a start that finds the topic without its checkpoint.
Law: events judged under different settings, or from different topics of one name, never mix in an ordered topic.

Topics are known by id: one that was deleted and made again under its name is another topic, to which positions, numbers and journal of
the old one are never applied. A start compares the ids with those that the checkpoint is bound to; while a job runs, the planner compares
them before it plans a range, and the driver every few seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ingest.config import IngestPlan, Partition
from ingest.journal.redis_journal import RedisJournal
from ingest.offsets import parse_partition, partition_name
from ordering.errors import RefusedError
from tidegate.platform.checkpoint.binding import check_same_topics, differences
from tidegate.platform.checkpoint.known_topics import KnownTopics
from tidegate.platform.checkpoint.output_start import Start
from tidegate.platform.kafka.admin import Topic
from tidegate.platform.observe.logs import get_logger

# Partitions, and topics of a pattern, may be added to an input while its ordered topic lives.
MAY_GROW = ("input_partitions", "topic_ids")

_log = get_logger("ingest.journal")


@dataclass(frozen=True, slots=True)
class TopicOrigin:
    """How an ordered topic was begun."""

    # The first offset of each input partition that it was begun from; empty: not known.
    starts: Mapping[Partition, int]
    # Its output start; None: not known.
    start: Start | None
    # The text that the journal keeps.
    fingerprint: str


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
    Return how an ordered topic was begun, if known, from the fingerprint that the journal keeps; a topic begun now is given one from
    *fingerprint* (the settings that shape its events, and the ids of the raw topics) and *start*. RefusedError if a topic with events but
    without checkpoint was made under other settings, or from topics that were deleted and made again; a checkpoint's own binding is
    compared elsewhere.
    """
    # The first offsets and the start of a topic that holds events already cannot be known from this plan.
    founders = [] if has_events else [partition for partition in plan.partitions if partition not in plan.joins]
    fields: dict[str, Any] = {
        "settings": dict(fingerprint),
        "starts": {partition_name(partition): plan.starts[partition].next_offset for partition in founders},
        "start": None if has_events else asdict(start),
    }
    text = json.dumps(fields, sort_keys=True)
    begins_anew = not has_events
    if has_checkpoint and not journal.has_readable_fingerprint(ordered.name, ordered.topic_id):
        # The checkpoint is bound to the same settings, so this job knows what somebody has overwritten.
        begins_anew = True
    stored, is_first = journal.read_or_set_fingerprint(ordered.name, ordered.topic_id, text, begins_anew=begins_anew)
    if has_events and not has_checkpoint:
        if is_first:
            _log.warning("the journal does not know the ordered topic: its settings cannot be compared", topic=ordered.name)
        compare_settings(ordered.name, json.loads(stored)["settings"], fingerprint)
    return _origin(stored)


def read_fingerprint(journal: RedisJournal, ordered: Topic) -> tuple[dict[str, str], TopicOrigin] | None:
    """Return the settings that shaped the events of an ordered topic, and how it was begun; None if the journal does not know it."""
    stored = journal.read_fingerprint(ordered.name, ordered.topic_id)
    if stored is None:
        return None
    return json.loads(stored)["settings"], _origin(stored)


def check_not_begun_anew(plan: IngestPlan, stored: str | None) -> None:
    """
    Raise RefusedError (TG-TOPIC-SETTINGS, TG-START-BOUND) if another job has begun the ordered topic otherwise: it found the topic empty
    after the job of *plan* had started. *stored* is the fingerprint that the journal keeps now.
    """
    # A fingerprint without starts was written by a job that found events in the topic, after the journal had been lost.
    if stored is None or stored == plan.fingerprint or not _origin(stored).starts:
        return
    topic = plan.settings.ordered_topic
    compare_settings(topic, json.loads(stored)["settings"], json.loads(plan.fingerprint)["settings"])
    raise RefusedError(
        f"ordered topic {topic} was begun by another job since, with another --start or from other offsets",
        code="TG-START-BOUND",
        where=topic,
        fix="let one of the two write it; the other needs an ordered topic of its own (set ordered_topic)",
    )


def _origin(fingerprint: str) -> TopicOrigin:
    known = json.loads(fingerprint)
    starts = {parse_partition(name): offset for name, offset in known["starts"].items()}
    return TopicOrigin(starts, None if known["start"] is None else Start(**known["start"]), fingerprint)


def compare_settings(ordered: str, known: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Raise RefusedError if the *current* settings or raw topics differ from the settings and topics *known* of an ordered topic."""
    check_same_topics(json.loads(known.get("topic_ids", "{}")), json.loads(current.get("topic_ids", "{}")), ordered, WAYS_OUT)
    # The fingerprint of a topic may lack this limit, which is younger than fingerprints: then the limit of now counts as known.
    limit = {name: current[name] for name in ("key_bytes_max",) if name in current}
    changed = differences({**limit, **known}, current, MAY_GROW)
    if changed:
        what = f"ordered topic {ordered} was made under other settings: {'; '.join(changed)}"
        fix = "set them back, or write to a new ordered topic (set ordered_topic): events judged by two policies must not mix"
        raise RefusedError(what, code="TG-TOPIC-SETTINGS", where=ordered, fix=fix)


WAYS_OUT = (
    "begin anew in a new ordered topic (set ordered_topic), or delete the ordered topic and its checkpoint folder: "
    "positions and numbers of the old topic mean nothing in the new one"
)


class TopicIdentity(KnownTopics):
    """The topics of *plan*: those that it reads when it starts, and the one that it writes."""

    def __init__(self, plan: IngestPlan) -> None:
        written = {plan.settings.ordered_topic: plan.ordered_topic_id} if plan.ordered_topic_id else {}
        super().__init__({**plan.topic_ids, **written}, plan.checkpoint, WAYS_OUT)
