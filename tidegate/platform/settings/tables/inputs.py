"""
The table [inputs.NAME]: one raw topic (or several), its time policies, and its ordered topic.

Law: a value that exists is usable (see :mod:`tidegate.platform.settings.tables.base`). Settings that shape the events of the ordered topic
are part of :meth:`InputSettings.fingerprint`. Settings of CTIs are not: when CTIs are written and what they list may differ between runs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ordering.errors import TidegateError
from ordering.policies import JUMP_WARN_US, Action, Generation, Policies, Shape
from ordering.protocol.elements import OF_ELEMENTS, OF_RECORDS, Places
from ordering.ticks import MILLISECOND_US, MINUTE_US, SECOND_US, format_duration
from tidegate.basics.dead_letter_reasons import LETTER_BYTES_MAX
from tidegate.platform.settings.kinds import (
    DelayOrTick,
    Duration,
    DurationOrForever,
    DurationOrOff,
    FieldPath,
    FieldPaths,
    HeaderNames,
    Kind,
    Size,
    Topic,
    TopicPattern,
    Topics,
)
from tidegate.platform.settings.tables.base import Conflict, Copies, Count, FieldType, LetterSize, Name, Partitions, Table
from tidegate.platform.settings.tables.payload_formats import (
    FORMATS_OF,
    Columns,
    Delimiter,
    EventTime,
    canonical_event_time,
    format_conflicts,
    format_fingerprint,
)

if TYPE_CHECKING:  # numpy comes with the wire format: settings are read without it
    from ordering.protocol.facts import FactKind
    from tidegate.language.expressions.binding.input_schema import InputSchema


def _default_topics(data: dict[str, Any]) -> tuple[str, ...]:
    return () if data.get("topic_pattern") else (data["name"],)


def _default_ordered_topic(data: dict[str, Any]) -> str:
    topics = data.get("topics", ())
    return f"{topics[0] if len(topics) == 1 and not data.get('topic_pattern') else data['name']}.ordered"


def _default_dead_letter_topic(data: dict[str, Any]) -> str:
    return f"{data['ordered_topic']}.dead"


# The version of the rules by which ingest reads fields: 2 finds names ignoring case, and writes equal numbers as one key.
FIELD_RULES = "2"
_EVENT_TIME_SETTINGS = (
    "early",
    "early_action",
    "late",
    "late_action",
    "reorder",
    "out_of_order_action",
    "timestamp_format",
    "over",
    "shape",
    "end",
)

Switch = Annotated[bool, Kind("true | false")]


class InputSettings(Table):
    """[inputs.NAME]: one input, its time policies and its ordered topic."""

    name: str = Field(default="", alias="__name__", exclude=True)
    topic_pattern: Annotated[TopicPattern | None, Kind("regular expression; default: none")] = Field(
        default=None, description="Topics whose whole name matches are read too, also those made later; beside topic, or instead of it."
    )
    topics: Annotated[Topics, Kind("topic name, or a list of them; default: the input's name, unless topic_pattern is set")] = Field(
        default_factory=_default_topics, alias="topic", description="Kafka topic or topics with the raw events."
    )
    ordered_topic: Annotated[Topic, Kind("topic name; default: the topic's (of several: the input's) name + \".ordered\"")] = Field(
        default_factory=_default_ordered_topic,
        validate_default=True,
        description="Kafka topic that ingest writes in order; made when missing.",
    )
    output_partitions: Annotated[Partitions | None, Kind("count; default: as many as the input has")] = Field(
        default=None, description="Partitions of the ordered topic; fixed once it is made."
    )
    replication_factor: Copies = Field(default=1, description="Copies of each partition of topics that are made.")
    retention_us: DurationOrForever = Field(
        default=None, description="How long the ordered topic keeps events, measured by their system timestamp."
    )
    format: Literal["json", "csv", "avro", "avro_registry"] = Field(
        default="json", description="How payloads are written; avro_registry: Avro framed with the id of a schema in [schema_registry]."
    )
    csv_columns: Columns = Field(default=(), description="Names of the values of a CSV record, in their order.")
    csv_delimiter: Delimiter = Field(default=",", description="What separates the values of a CSV record.")
    avro_schema: Annotated[str | None, Kind("path of an .avsc file; default: none")] = Field(
        default=None, description="Avro schema that payloads of format avro are written by."
    )
    arrival: Literal["broker", "ingest"] = Field(
        default="broker",
        description="Where arrival time comes from; broker: the Kafka record timestamp; ingest: when ingest first planned to read the "
        "record, the same for all jobs that read the topic.",
    )
    arrival_max_ahead_us: Annotated[
        Duration | None, Kind("duration; default: 2m, or 1d if all raw topics are LogAppendTime at the first start")
    ] = Field(
        default=None,
        description="A record stamped further ahead of the wall clock (to within a tenth) goes to the dead-letter topic.",
    )
    watermark_jump_warn_us: Duration = Field(
        default=JUMP_WARN_US,
        description="A record is logged and counted if it puts the watermark further ahead of its arrival, or arrival ahead of the clock, "
        "or is stamped further behind an earlier record.",
    )
    timestamp_by: EventTime | None = Field(
        default=None, description="Field with the event time, or an expression over the payload; absent: events are taken in arrival order."
    )
    timestamp_format: Literal["auto", "iso", "s", "ms", "us", "ns"] = Field(
        default="auto", description="How event time is written: ISO-8601 text, or a number since 1970; auto: recognized from each value."
    )
    shape: Literal["point", "interval", "edge"] = Field(
        default="point", description="What an event is in time: an instant, a span with both ends, or one end of a span."
    )
    end: FieldPath | None = Field(
        default=None,
        description="Field with the end of the span, written like timestamp_by (its start); an edge without it is a start edge.",
    )
    over: FieldPaths | None = Field(
        default=None,
        description="Field, or fields, whose values are substreams with a watermark each; absent: one timeline per partition. "
        "Equal numbers are one (5 and 5.0), NULL is not ''; a number and the text that spells it (5 and '5', true and 'true') are one too.",
    )
    early_us: DurationOrOff = Field(default=5 * MINUTE_US, description="An event whose time is further ahead of its arrival is early.")
    early_action: Literal["adjust", "drop"] = Field(
        default="drop", description="What happens to an early event: moved back to arrival + early, or dropped."
    )
    late_us: DurationOrOff = Field(
        default=5 * SECOND_US, description="An event that arrives later than this after its time is late; off only without over."
    )
    late_action: Literal["adjust", "drop"] = Field(
        default="adjust", description="What happens to a late event: lifted to arrival - late, or dropped."
    )
    reorder_us: Duration = Field(default=0, description="How long events are held so that they can be put in order; adds this much delay.")
    out_of_order_action: Literal["adjust", "drop"] = Field(
        default="adjust", description="What happens to an event below the watermark: lifted to it, or dropped."
    )
    explode: Literal["array"] | None = Field(
        default=None,
        description="array: each element of a record that is a JSON array is an event of its own; absent: each record is one event.",
    )
    source_ctis: Switch = Field(default=False, description="Whether the raw topic holds CTIs among its events, enqueued by their source.")
    import_ctis_from: Annotated[Name | None, Kind("name of another input; default: none")] = Field(
        default=None, description="Input whose time drives this one's: its CTIs count here too, as soon as they are seen."
    )
    cti_violation_action: Literal["adjust", "drop"] = Field(
        default="adjust",
        description="What happens to an event before a CTI of the source or an imported one; adjust: an edge, or an interval that reaches "
        "past the CTI, is moved up to it, and all else is dropped; drop: every such event is. Points are dropped either way.",
    )
    cti_every_events: Annotated[Count | None, Kind("count; default: a CTI at the end of each batch")] = Field(
        default=None, description="A CTI after this many accepted events of an input partition; end edges are not counted."
    )
    cti_every_us: Annotated[Duration | None, Kind("duration; default: a CTI at the end of each batch")] = Field(
        default=None,
        description="A CTI when an input partition's watermark has advanced this far since its last CTI (an output's is a grid).",
    )
    cti_delay_us: DelayOrTick = Field(
        default=0,
        description="How far CTIs stay behind the watermark. -1us also changes events: each is final at once, so "
        "a later event with the same time is out of order.",
    )
    cti_list_substreams: Switch = Field(
        default=False, description="Whether CTIs list the substreams whose watermark is ahead of what their events show."
    )
    idle: Literal["auto", "on", "off"] = Field(
        default="auto", description="Whether silence advances time; auto: on for LogAppendTime topics, and where arrival is ingest."
    )
    idle_cadence_us: Duration = Field(default=SECOND_US, description="How often the arrival time of a silent partition is estimated.")
    idle_margin_us: Duration = Field(
        default=500 * MILLISECOND_US, description="How far an estimate stays behind the elapsed time (plus 0.1 % of the silence)."
    )
    discovery_cadence_us: Duration = Field(
        default=10 * SECOND_US, description="How often to look for new partitions, and for new topics that topic_pattern matches."
    )
    dead_letter_topic: Annotated[Topic, Kind('topic name; default: the ordered topic\'s name + ".dead"')] = Field(
        default_factory=_default_dead_letter_topic,
        validate_default=True,
        description="Kafka topic for records that cannot be read, with the reason.",
    )
    dead_letter_retention_us: DurationOrForever = Field(
        default=None, description="How long the dead-letter topic keeps its records, if it is made."
    )
    dropped_topic: Annotated[Topic | None, Kind("topic name; default: none")] = Field(
        default=None,
        description="Kafka topic for events that a policy drops, with the policy and the limit that they broke; it may be the dead-letter "
        "topic, whose retention and size it has.",
    )
    dead_letter_bytes_max: LetterSize = Field(
        default=LETTER_BYTES_MAX,
        description="Largest dead letter; a larger one is cut, and its headers say how large it was. The topic's limit if it is made.",
    )
    max_events_per_batch: Count = Field(default=1_000_000, description="Most events one batch reads, over all partitions of the input.")
    journal_outage: Literal["go_on", "pause"] = Field(
        default="go_on",
        description="What happens while Redis does not answer; go_on: records that no run has judged before are still ordered, without "
        "idle estimates; pause: none is. With arrival = ingest none ever is.",
    )
    on_lost_records: Literal["stop", "gap"] = Field(
        default="stop",
        description="What a start does if Kafka has deleted records that were never read; stop: it refuses until tidegate skip; "
        "gap: it continues after them, which the journal keeps and every replay repeats.",
    )
    record_bytes_max: Annotated[Size | None, Field(ge=1024), Kind("size; default: what the raw topics take at the first start")] = Field(
        default=None,
        description="Key, value and kept headers of an ordered event have at most so many bytes together, at most 63MiB; larger ones are "
        "dead letters.",
    )
    key_bytes_max: Annotated[Size | None, Field(ge=1), Kind("size; default: 4KiB")] = Field(
        default=None, description="The key of a substream has at most so many bytes; records with longer ones are dead letters."
    )
    max_bytes_per_batch: Annotated[Size, Field(ge=1024)] = Field(
        default=256 * 2**20,
        description="Most bytes of payload one batch reads, over all partitions of the input, about; if records turn out larger, held "
        "events are saved while a range is read.",
    )
    target_batch_us: Duration = Field(
        default=SECOND_US,
        description="How long a batch should take: it reads more or fewer events; far behind it may take ten times as long, "
        "and reads some partitions at a time, in turns.",
    )
    batch_span_us: Duration = Field(
        default=30 * SECOND_US,
        description="How long a batch at the end of its topics stays open: meanwhile it goes on reading, ordering and writing, so records "
        "wait for no batch. 0s: each batch reads a planned range. The events are the same.",
    )
    held_bytes_max: Annotated[Size, Field(ge=0)] = Field(
        default=256 * 2**20,
        description="Most bytes of payload that events held for an input partition keep in memory; what is more goes to files.",
    )
    prefetch_bytes: Annotated[Size, Field(ge=1024)] = Field(
        default=16 * 2**20, description="Most bytes fetched ahead of the reader, for each partition; 128MiB for all partitions of a worker."
    )
    headers: HeaderNames = Field(
        default=(),
        description="Headers of raw records, by their exact names, that the ordered topic keeps, for GetMetadataPropertyValue in queries; "
        "of several with one name the last.",
    )
    fields: dict[str, FieldType] = Field(
        default_factory=dict,
        description="Types of payload fields for queries; undeclared numbers are bigint without point and exponent, else float.",
    )

    def _conflicts(self) -> list[Conflict]:
        return [
            *self._effect_conflicts(),
            *self._floor_conflicts(),
            *self._shape_conflicts(),
            *self._cti_conflicts(),
            *self._topic_conflicts(),
            *self._policy_conflicts(),
            *format_conflicts(self),
        ]

    def unused_settings(self) -> set[str]:
        """Return the settings without effect for this input, such as all time policies if there is no ``timestamp_by``."""
        return {name for names, _ in self._settings_without_effect() for name in names}

    def _settings_without_effect(self) -> list[tuple[tuple[str, ...], str]]:
        """Return settings without effect here, with the setting that they need."""
        without_effect: list[tuple[tuple[str, ...], str]] = (
            [] if self.timestamp_by is not None else [(_EVENT_TIME_SETTINGS, "timestamp_by")]
        )
        without_effect += [(("early_action",), "early")] if self.early_us is None else []
        without_effect += [((setting,), f'format = "{wanted}"') for setting, wanted in FORMATS_OF.items() if self.format != wanted]
        return without_effect if self._reads_ctis else [*without_effect, (("cti_violation_action",), "source_ctis or import_ctis_from")]

    def _effect_conflicts(self) -> list[Conflict]:
        # Only settings that were written are reported; defaults are harmless.
        given = sorted(name.removesuffix("_us") for name in self.model_fields_set)
        needs = {name: needed for names, needed in self._settings_without_effect() for name in names}
        useless = {name: needs[name] for name in given if name in needs}
        return [(name, f"{name} means nothing without {need}", f"set {need}, or remove {name}") for name, need in useless.items()]

    def _floor_conflicts(self) -> list[Conflict]:
        if self.over is None or self.late_us is not None:
            return []
        return [("late", 'late = "off" cannot stand with over', "give late a duration up to 20d: only it lets silent substreams advance")]

    def _shape_conflicts(self) -> list[Conflict]:
        if self.shape == "point" and self.end is not None:
            return [("end", "a point has no end", 'set shape = "interval" or "edge", or remove end')]
        if self.shape != "point" and self.end is None and self.timestamp_by is not None:
            return [("shape", f'shape = "{self.shape}" needs the field with the end', 'set end = "FIELD", or shape = "point"')]
        return []

    def _cti_conflicts(self) -> list[Conflict]:
        conflicts = []
        if self.cti_list_substreams and self.over is None:
            conflicts.append(("cti_list_substreams", "there are no substreams to list without over", "set over, or remove it"))
        if self.cti_delay_us < 0 and self.timestamp_by is None:
            fix = "set timestamp_by, or give cti_delay 0s or more"
            conflicts.append(("cti_delay", "a negative cti_delay means nothing without timestamp_by: arrival times repeat", fix))
        elif self.cti_delay_us < 0 and self.reorder_us:
            fix = 'set reorder = "0s", or give cti_delay 0s or more'
            problem = "a negative cti_delay commits each event by itself, so none can be held to be put in order"
            conflicts.append(("cti_delay", problem, fix))
        if self.import_ctis_from is not None and self.import_ctis_from == self.name:
            conflicts.append(("import_ctis_from", f"{self.name} imports CTIs from itself: a cycle", "name another input, or remove it"))
        return conflicts

    @property
    def _reads_ctis(self) -> bool:
        """Whether CTIs of the source or of another input affect this input's events."""
        return self.source_ctis or self.import_ctis_from is not None

    def _topic_conflicts(self) -> list[Conflict]:
        conflicts = []
        if self.ordered_topic in self.topics:
            fix = "give the ordered topic a name of its own"
            conflicts.append(("ordered_topic", f"{self.ordered_topic} is both read and written", fix))
        for key, names in (("topic", self.topics), ("ordered_topic", (self.ordered_topic,))):
            if self.dead_letter_topic in names:
                fix = "give the dead-letter topic a name of its own"
                conflicts.append(("dead_letter_topic", f"{self.dead_letter_topic} is the {key} too", fix))
            if self.dropped_topic in names:
                fix = "give the topic of dropped events a name of its own, or that of the dead-letter topic"
                conflicts.append(("dropped_topic", f"{self.dropped_topic} is the {key} too", fix))
        return conflicts

    def _policy_conflicts(self) -> list[Conflict]:
        try:
            self.policies()
            self.generation()
        except TidegateError as error:
            return [(error.where or "late", error.what, error.fix)]
        return []

    def policies(self) -> Policies:
        """Return the time policies; without ``timestamp_by`` those of arrival order."""
        violation_action = Action(self.cti_violation_action)
        if self.timestamp_by is None:
            return replace(Policies.arrival_order(), cti_violation_action=violation_action)
        return Policies(
            early_us=self.early_us,
            early_action=Action(self.early_action),
            late_us=self.late_us,
            late_action=Action(self.late_action),
            # A CTI one tick beyond the watermark is the same as a watermark one tick beyond the largest event.
            reorder_us=self.reorder_us if self.cti_delay_us >= 0 else self.cti_delay_us,
            out_of_order_action=Action(self.out_of_order_action),
            cti_violation_action=violation_action,
        )

    def generation(self) -> Generation:
        """Return when CTIs are written and what they list."""
        return Generation(self.cti_every_events, self.cti_every_us, max(self.cti_delay_us, 0), self.cti_list_substreams)

    @property
    def planning_kind(self) -> FactKind:
        """The kind of fact written when a range is first planned: its records' arrival, or the clock that judges absurd timestamps."""
        from ordering.protocol.facts import FactKind

        return FactKind.STAMP if self.arrival == "ingest" else FactKind.CLOCK

    @property
    def event_shape(self) -> Shape:
        return Shape(self.shape)

    @property
    def places(self) -> Places:
        """How the input's events are numbered."""
        return OF_RECORDS if self.explode is None else OF_ELEMENTS

    def schema_of_events(self, name: str) -> InputSchema:
        """Return the schema of the input for scripts, which call it *name*."""
        from tidegate.language.expressions.binding.input_schema import InputSchema

        is_stamped = self.arrival == "ingest"
        return InputSchema(name, self.timestamp_by, self.over, self.fields, is_stamped=is_stamped, headers=self.headers)

    def fingerprint(self) -> dict[str, str]:
        """Return the settings that are bound to a checkpoint, as canonical text: with another value the ordered topic would differ."""
        # Settings without effect are left out, so that checkpoints that do not know them stay valid.
        policies = self.policies()
        shape_part = {"shape": self.shape, "end": self.end or ""} if self.shape != "point" else {}
        cti_part = {"cti_violation_action": policies.cti_violation_action.value} if self._reads_ctis else {}
        if self.source_ctis:
            cti_part["source_ctis"] = "true"
        if self.import_ctis_from is not None:
            cti_part["import_ctis_from"] = self.import_ctis_from
        return {
            "topic": ",".join(sorted(self.topics)),
            **({} if self.topic_pattern is None else {"topic_pattern": self.topic_pattern}),
            "ordered_topic": self.ordered_topic,
            # Empty if it follows from the input: the topic itself then fixes its number of partitions.
            "output_partitions": "" if self.output_partitions is None else str(self.output_partitions),
            "format": self.format,
            "arrival": self.arrival,
            "timestamp_by": canonical_event_time(self),
            "timestamp_format": self.timestamp_format,
            "over": self.over or "",
            "early": _duration_or_off(policies.early_us),
            **({"early_action": policies.early_action.value} if policies.early_action is not Action.DROP else {}),
            "late": _duration_or_off(policies.late_us),
            "late_action": policies.late_action.value,
            "reorder": format_duration(policies.reorder_us),
            "out_of_order_action": policies.out_of_order_action.value,
            # How names find fields and what bytes keys have: an ordered topic of other rules is not continued.
            **({"field_rules": FIELD_RULES} if self.timestamp_by is not None or self.over is not None else {}),
            **shape_part,
            **cti_part,
            **({"headers": json.dumps(self.headers)} if self.headers else {}),
            **({} if self.explode is None else {"explode": self.explode}),
            **format_fingerprint(self),
        }


def _duration_or_off(duration_us: int | None) -> str:
    return "off" if duration_us is None else format_duration(duration_us)
