"""The survey of a start: reads topics, checkpoint and journal before anything is decided."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from ingest.config import Partition, own_key
from ingest.cti_imports import ImportedInput
from ingest.journal.redis_journal import RedisJournal, impossible_error
from ingest.journal.skip_book import KnownSkips, SkipBook
from ingest.offsets import IngestOffset
from ingest.planner.stage_progress import judged_positions, read_stage_progress
from ingest.skips import Skip
from ingest.start.resume import Resumption
from ordering.errors import RefusedError
from ordering.protocol.journal import ImpossibleFactError
from tidegate.ordered_topic.promises import has_ended
from tidegate.platform.checkpoint.binding import checkpoint_folder, read_binding, replace_text
from tidegate.platform.checkpoint.damage import check_whole, read_json
from tidegate.platform.checkpoint.offset_log import checkpoint_state, last_batches, read_offset
from tidegate.platform.kafka.admin import Admin, Topic
from tidegate.platform.settings.input_topics import match_topics, own_topics
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.inputs import InputSettings
from tidegate.records.fields import FieldReader
from tidegate.records.payloads.formats import PayloadFormat

_SKIPS_FILE = "skips.json"


@dataclass(frozen=True, slots=True)
class LogSurvey:
    """The state of topics, checkpoint and journal when an input is started."""

    folder: Path
    # The raw topics, sorted by name.
    raw: tuple[Topic, ...]
    # The first offset that each of their partitions still has.
    first_offsets: Mapping[Partition, int]
    payloads: PayloadFormat = field(default_factory=PayloadFormat)
    # The ordered topic; None if it is not there.
    ordered: Topic | None = None
    # Whether any record was written to it.
    has_events: bool = False
    # Whether each of its channels ends in a final CTI; only looked up if the checkpoint has no batch to finish.
    has_ended: bool = False
    imported: ImportedInput | None = None
    binding: Mapping[str, str] | None = None
    # Whether Spark has planned nothing yet, has a batch to finish, or has finished all it planned.
    checkpoint: Literal["empty", "pending", "settled"] = "empty"
    # Numbers of Spark's last planned and last finished batch, -1 for none.
    last_planned: int = -1
    last_finished: int = -1
    # The offsets at their ends, if they can be read.
    planned: IngestOffset | None = None
    done: IngestOffset | None = None
    # Where the job began, from the checkpoint's folder.
    resumption: Resumption | None = None
    # The skips that the journal and the checkpoint's folder know.
    skips: KnownSkips = field(default_factory=KnownSkips)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(partition for topic in self.raw for partition in topic.all_partitions)

    @property
    def topic_ids(self) -> dict[str, str]:
        return {topic.name: topic.topic_id for topic in self.raw}


def survey_start(settings: Settings, name: str, admin: Admin, journal: RedisJournal) -> LogSurvey:
    """Survey everything that a start of the input *name* depends on; RefusedError if a topic is missing, or the checkpoint damaged."""
    chosen = settings.input(name)
    payloads = PayloadFormat.of(chosen, settings.schema_registry)
    FieldReader.of(chosen, payloads)  # settings by which workers could not read raise their error here
    folder = checkpoint_folder(settings, f"ingest-{chosen.ordered_topic}")
    binding = read_binding(folder)
    check_whole(folder, is_bound=binding is not None)
    (last_planned, last_finished), state = last_batches(folder), checkpoint_state(folder)
    planned, done = _read_offset(folder, last_planned), _read_offset(folder, last_finished)
    if done is not None:
        done = done.advance(judged_positions(done.partitions, read_stage_progress(folder), last_finished))
    raw = tuple(admin.require(topic) for topic in _raw_topics(settings, chosen, admin, planned.partitions if planned else ()))
    partitions = [partition for topic in raw for partition in topic.all_partitions]
    topic_ids = {topic.name: topic.topic_id for topic in raw}
    ordered = admin.find(chosen.ordered_topic)
    outputs = ordered.all_partitions if ordered is not None else []
    ends = admin.ends(outputs) if outputs else {}
    has_events = any(ends.values())
    return LogSurvey(
        folder=folder,
        raw=raw,
        first_offsets=admin.starts(partitions),
        payloads=payloads,
        ordered=ordered,
        has_events=has_events,
        has_ended=state == "settled" and has_events and has_ended(settings.kafka.client_properties(), admin.starts(outputs), ends),
        imported=_imported_input(settings, admin, chosen.import_ctis_from),
        binding=binding,
        checkpoint=state,
        last_planned=last_planned,
        last_finished=last_finished,
        planned=planned,
        done=done,
        resumption=Resumption.read(folder),
        skips=_read_skips(folder, journal, admin, name, ordered, {partition: topic_ids[partition[0]] for partition in partitions}),
    )


def _check_skips(known: KnownSkips, admin: Admin, name: str) -> None:
    """Raise ImpossibleFactError (TG-JOURNAL-IMPOSSIBLE) if a skip passes over records that have not come yet: nobody can ask for that."""
    skips = (*known.in_force, *known.asked)
    ends = admin.ends({skip.input_partition for skip in skips}, committed=False) if skips else {}
    for skip in skips:
        if not 0 <= skip.start < skip.end <= ends[skip.input_partition]:
            reason = f"a skip from offset {skip.start} to {skip.end}, and the partition ends at {ends[skip.input_partition]}"
            error = impossible_error(skip.place, reason, name)
            undo = f"tidegate skip {name} {skip.place} --undo"
            raise error if skip in known.in_force else ImpossibleFactError(error.what, where=error.where, fix="undo it", example=undo)


def _read_skips(
    folder: Path, journal: RedisJournal, admin: Admin, name: str, ordered: Topic | None, topic_ids: Mapping[Partition, str]
) -> KnownSkips:
    if ordered is None:
        return KnownSkips()
    keys = {partition: own_key(ordered.name, partition, topic_id) for partition, topic_id in topic_ids.items()}
    known = SkipBook(journal, ordered.name, ordered.topic_id, keys).read()
    _check_skips(known, admin, name)
    undone = {skip.place for skip in known.undone}
    in_force = {skip.place: skip for skip in (*read_skips(folder), *known.in_force) if skip.place not in undone}
    asked = tuple(skip for skip in known.asked if skip.place not in in_force)
    return replace(known, in_force=tuple(in_force.values()), asked=asked)


def read_skips(folder: Path) -> tuple[Skip, ...]:
    """Return the skips in force by a checkpoint's folder: they hold even if Redis is emptied before a CTI has carried them."""
    return tuple(Skip(**fields) for fields in read_json(folder / _SKIPS_FILE) or ())


def write_skips(folder: Path, skips: tuple[Skip, ...]) -> None:
    """Write the skips in force into a checkpoint's folder, unless it has them already."""
    if skips != read_skips(folder):
        replace_text(folder / _SKIPS_FILE, json.dumps([asdict(skip) for skip in skips], indent=1))


def _read_offset(folder: Path, batch: int) -> IngestOffset | None:
    stored = read_offset(folder, batch)
    return None if stored is None else IngestOffset.from_json(stored)


def _raw_topics(settings: Settings, chosen: InputSettings, admin: Admin, known: Iterable[Partition]) -> list[str]:
    names = admin.partition_counts() if chosen.topic_pattern is not None else {}
    topics = sorted({*match_topics(chosen, names, own_topics(settings)), *(topic for topic, _ in known)})
    if not topics:
        raise RefusedError(
            f"no topic matches {chosen.topic_pattern!r}",
            code="TG-TOPIC-MISSING",
            where=f"inputs.{chosen.name}.topic_pattern",
            fix="create the first one, or change the pattern: the ordered topic needs to know what it is made of",
            example='topic_pattern = "flights-.*"',
        )
    return topics


def _imported_input(settings: Settings, admin: Admin, name: str | None) -> ImportedInput | None:
    if name is None:
        return None
    topic = admin.require(settings.input(name).ordered_topic, f"start tidegate ingest {name} first: its CTIs are imported")
    return ImportedInput(name, topic.name, topic.partitions)
