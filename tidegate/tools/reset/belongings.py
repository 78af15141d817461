"""
What a job has made: its checkpoint, the topics that it writes, files, rows of stores, and what Redis has of them.

A job is the ingest job of an input, or the query job of an output with all outputs of its script: half of a script cannot be begun anew.
What the journal knows of a raw topic (estimates, stamps, clock readings, skips) belongs to that topic: with it a new run judges as the
first did.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ordering.errors import RefusedError, SettingError
from sinks.file_places import absolute_place
from tidegate.platform.checkpoint.binding import checkpoint_folder, read_binding, replace_text
from tidegate.platform.checkpoint.claim import UNFINISHED_RESET
from tidegate.platform.checkpoint.damage import read_json
from tidegate.platform.observe.progress_store import progress_key, question_key
from tidegate.platform.settings.load import Settings
from tidegate.platform.settings.tables.inputs import InputSettings
from tidegate.platform.settings.tables.outputs import OutputSettings


@dataclass(frozen=True, slots=True)
class JobBelongings:
    """The names of what one job makes; whether it is there is not said."""

    # ``ingest NAME`` or ``query NAME``.
    job: str
    # The checkpoint folder.
    folder: Path
    # What the job writes: ordered or result topics, plain topics, dead letters.
    topics: tuple[str, ...]
    # Under which names the job publishes its progress; its sinks publish under those of its outputs.
    publishers: tuple[str, ...]
    # The outputs of a query; none of ingest.
    outputs: tuple[OutputSettings, ...] = ()
    # Patterns of further keys in Redis.
    hashes: tuple[str, ...] = field(default=())
    # Whether an earlier reset, which was cut off, was to delete the rows of stores.
    owes_rows: bool = False

    @property
    def redis_patterns(self) -> tuple[str, ...]:
        """The keys in Redis, as patterns, without those of sinks: an output of another project may have the same name."""
        own = [key for name in self.publishers for key in (progress_key(name), question_key(name))]
        return (*own, *self.hashes)


def find_belongings(settings: Settings, name: str) -> JobBelongings:
    """
    Return what belongs to the job of an input or an output: NAME, or where both have the name ``inputs.NAME`` or ``outputs.NAME``. Raises
    SettingError: there is none, or both.
    """
    section, dot, plain = name.rpartition(".")
    if dot and section in ("inputs", "outputs"):
        return _of_ingest(settings, settings.input(plain)) if section == "inputs" else _of_query(settings, settings.output(plain))
    if name in settings.inputs and name in settings.outputs:
        fix = f"say inputs.{name} or outputs.{name}"
        raise SettingError(f"{name} is an input and an output", code="TG-SETTING-NAME", where="NAME", fix=fix)
    if name in settings.inputs:
        return _of_ingest(settings, settings.input(name))
    return _of_query(settings, settings.output(name))


def find_readers(settings: Settings, topics: Sequence[str]) -> list[str]:
    """Return the checkpoint folders of queries that read one of *topics*: they refuse the topic that is made anew."""
    return [str(folder) for folder, binding in _query_bindings(settings) if {*binding.get("reads", "").split(",")} & {*topics}]


def _of_ingest(settings: Settings, table: InputSettings) -> JobBelongings:
    topic = table.ordered_topic
    # Several inputs may share one topic of dead letters: it stays.
    others = {other.dead_letter_topic for other in settings.inputs.values() if other.name != table.name}
    return JobBelongings(
        f"ingest {table.name}",
        checkpoint_folder(settings, f"ingest-{topic}"),
        (topic, *({table.dead_letter_topic} - others)),
        (topic,),
        hashes=tuple(f"tidegate:{{{topic}}}:{kind}:*" for kind in ("fingerprint", "notes")),
    )


def _of_query(settings: Settings, table: OutputSettings) -> JobBelongings:
    default = checkpoint_folder(settings, f"query-{table.topic or table.name}")
    own, places, owes_rows = default, [_places(table)], False
    for folder, binding in _query_bindings(settings):
        # Of a reset that was cut off the binding is gone, and the mark has what it said.
        mark = read_mark(folder)
        written = _written_places(binding) if mark is None else mark.places
        if any(_places(table) & output for output in written):
            own, places, owes_rows = folder, written, mark is not None and mark.rows
            break
    outputs = [output for output in settings.outputs.values() if any(_places(output) & written for written in places)]
    # The first output names the folder and the topic of dead letters.
    first = own.name.removeprefix("query-")
    outputs.sort(key=lambda output: (output.topic or output.name) != first)
    topics = [topic for output in outputs for topic in (output.topic, output.plain_topic) if topic]
    return JobBelongings(
        f"query {outputs[0].name}",
        own,
        (*topics, f"{first}.dead"),
        (first,),
        tuple(outputs),
        owes_rows=owes_rows,
    )


class Mark(NamedTuple):
    """What the mark of a reset says: the places of each output, and whether the rows of stores go too."""

    places: list[set[str]]
    rows: bool


def read_mark(folder: Path) -> Mark | None:
    """Return the mark of a reset that was cut off, None if there is none."""
    stored = read_json(folder / UNFINISHED_RESET)
    return None if stored is None else Mark([set(places) for places in stored["places"]], bool(stored["rows"]))


def write_mark(job: JobBelongings, *, rows: bool) -> None:
    """Mark the checkpoint folder of a job: from now on it does not start until its reset is done."""
    text = json.dumps({"places": [sorted(_places(output)) for output in job.outputs], "rows": rows})
    replace_text(job.folder / UNFINISHED_RESET, text)


def _places(output: OutputSettings) -> set[str]:
    """Return the places of an output: no other output has one of them."""
    # As the checkpoint of a query has them.
    files = output.files and absolute_place(output.files)
    return {place for place in (output.topic, files, output.plain_topic) if place} or {f"sink of {output.name}"}


def _written_places(binding: Mapping[str, str]) -> list[set[str]]:
    """Return the places of each output that a query's checkpoint is bound to."""
    return [
        {place for place in (topic, files, plain) if place} for topic, files, _, _, plain, *_ in json.loads(binding.get("output", "[]"))
    ]


def _query_bindings(settings: Settings) -> Iterator[tuple[Path, dict[str, str]]]:
    for folder in sorted(checkpoint_folder(settings, "").glob("query-*")):
        with suppress(RefusedError):  # a damaged checkpoint tells nothing
            yield folder, read_binding(folder) or {}
