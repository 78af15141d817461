"""
Settings: one object made of ``tidegate.toml``, ``TIDEGATE_*`` variables and flags, complete and checked.

Law: :func:`load` returns settings with which a job can start, or raises one error that lists all problems; before that nothing is started
or written. Every value has its origin. Secrets are never shown.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from ordering.errors import SettingError
from tidegate.basics.secret_masking import MASK, scrub
from tidegate.platform.settings.kinds import MissingSecret, plain_text
from tidegate.platform.settings.manual import keys_below
from tidegate.platform.settings.problems import choice_fix, raise_problems
from tidegate.platform.settings.secret_settings import Key, is_hidden
from tidegate.platform.settings.sources import (
    CONFIG_VARIABLE,
    Entry,
    Layer,
    dotted_name,
    merge_layers,
    parse_assignments,
    read_environment,
    read_file,
    read_flags,
    resolve_secrets,
    unknown_tables,
)
from tidegate.platform.settings.tables.base import Conflict, Name, Table
from tidegate.platform.settings.tables.functions import FunctionSettings
from tidegate.platform.settings.tables.inputs import InputSettings
from tidegate.platform.settings.tables.kafka import KafkaSettings
from tidegate.platform.settings.tables.outputs import OutputSettings
from tidegate.platform.settings.tables.queries import ListedQuery
from tidegate.platform.settings.tables.query import QuerySettings
from tidegate.platform.settings.tables.redis import RedisSettings
from tidegate.platform.settings.tables.references import ReferenceSettings
from tidegate.platform.settings.tables.schema_registry import SchemaRegistrySettings
from tidegate.platform.settings.tables.spark import SparkSettings
from tidegate.platform.settings.tables.watching import LoggingSettings, MetricsSettings, TracesSettings
from tidegate.platform.settings.validation import explain_problems
from tidegate.platform.stack.this_folder import find_stack

DEFAULT_FILE = "tidegate.toml"
DEFAULT_ORIGIN = "default"
STACK_ORIGIN = "embedded stack"


class Settings(Table):
    """All settings, from :func:`load`. Made from nested tables, as tests do, they ignore the environment."""

    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    schema_registry: SchemaRegistrySettings = SchemaRegistrySettings()
    spark: SparkSettings = SparkSettings()
    inputs: dict[Name, InputSettings] = Field(default_factory=dict)
    outputs: dict[Name, OutputSettings] = Field(default_factory=dict)
    references: dict[Name, ReferenceSettings] = Field(default_factory=dict)
    functions: dict[Name, FunctionSettings] = Field(default_factory=dict)
    queries: dict[Name, ListedQuery] = Field(default_factory=dict)
    query: QuerySettings = QuerySettings()
    metrics: MetricsSettings = MetricsSettings()
    traces: TracesSettings = TracesSettings()
    logging: LoggingSettings = LoggingSettings()

    _entries: dict[Key, str] = PrivateAttr(default_factory=dict)
    _unset: dict[Key, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _name_tables(cls, data: dict[str, Any]) -> dict[str, Any]:
        # Each table gets its own name, which its defaults and error messages need.
        named = dict(data)
        for section in ("inputs", "outputs", "references", "functions", "queries"):
            tables = named.get(section)
            if isinstance(tables, dict):
                named[section] = {name: {**table, "__name__": name} if isinstance(table, dict) else table for name, table in tables.items()}
        return named

    def _conflicts(self) -> list[Conflict]:
        return [
            *self._writer_conflicts(),
            *self._loop_conflicts(),
            *self._name_conflicts(),
            *self._import_conflicts(),
            *self._registry_conflicts(),
            *self._query_conflicts(),
        ]

    def _writer_conflicts(self) -> list[Conflict]:
        writers: dict[str, list[str]] = defaultdict(list)
        for name, settings in self.inputs.items():
            writers[settings.ordered_topic].append(f"inputs.{name}.ordered_topic")
        for name, results in self.outputs.items():
            # No topic has the name of a folder with all folders above it.
            files = results.files if results.files is None or "://" in results.files else str(Path(results.files).resolve())
            for setting, place in (("topic", results.topic), ("plain_topic", results.plain_topic), ("files", files)):
                if place is not None:
                    writers[place.rstrip("/")].append(f"outputs.{name}.{setting}")
        for name, settings in self.inputs.items():
            for setting, topic in (("dead_letter_topic", settings.dead_letter_topic), ("dropped_topic", settings.dropped_topic)):
                if topic in writers:
                    writers[topic].append(f"inputs.{name}.{setting}")
        fix = "give each a place of its own: two writers would replace, or mix, what the other has written"
        return [(keys[-1], f"{place} is written by {' and '.join(keys)}", fix) for place, keys in writers.items() if len(keys) > 1]

    def _loop_conflicts(self) -> list[Conflict]:
        # A topic with the name of its output is perhaps the default, which no user chose: no input may read it as raw events.
        loops = [
            (output, name)
            for output, results in self.outputs.items()
            for name, given in self.inputs.items()
            if results.stores and results.topic == output and output in given.topics
        ]
        fix = "give the output a topic of another name, or rename it"
        what = "the results of {0} would go into topic {0}, which input {1} reads as raw events"
        return [(f"outputs.{loop[0]}.topic", what.format(*loop), fix) for loop in loops]

    def _name_conflicts(self) -> list[Conflict]:
        input_names = {name.lower(): name for name in self.inputs}
        clashes = [(name, input_names[name.lower()]) for name in self.references if name.lower() in input_names]
        fix = "rename one of them: queries tell them apart by name"
        return [(f"references.{name}", f"there is an input {other} too", fix) for name, other in clashes]

    def _import_conflicts(self) -> list[Conflict]:
        drivers = {name: given.import_ctis_from for name, given in self.inputs.items() if given.import_ctis_from}
        conflicts = [
            (f"inputs.{name}.import_ctis_from", f"there is no input {other}", _driver_fix(other, set(self.inputs) - {name}))
            for name, other in drivers.items()
            if other not in self.inputs
        ]
        for cycle in _cycles(drivers):
            steps = ", ".join(f"{name} imports CTIs from {drivers[name]}" for name in cycle)
            fix = "an input can only be driven by one that runs without it: remove import_ctis_from from one of them"
            conflicts.append((f"inputs.{cycle[0]}.import_ctis_from", f"{steps}: a cycle, in which none can start", fix))
        return conflicts

    def _registry_conflicts(self) -> list[Conflict]:
        framed = next((name for name, given in self.inputs.items() if given.format == "avro_registry"), None)
        if framed is None or self.schema_registry.url is not None:
            return []
        problem = f"inputs.{framed} needs the schema registry, and nothing says where it is"
        return [(f"inputs.{framed}.format", problem, 'add [schema_registry] with url = "http://host:8081"')]

    def _query_conflicts(self) -> list[Conflict]:
        conflicts: list[Conflict] = []
        writers: dict[str, list[str]] = defaultdict(list)
        for name, query in self.queries.items():
            if query.into is None:
                continue
            writers[query.into].append(name)
            if query.into not in self.outputs:
                fix = choice_fix(query.into, self.outputs) if self.outputs else f"add a table [outputs.{query.into}]"
                conflicts.append((f"queries.{name}.into", f"there is no output {query.into}", fix))
        fix = "give each an output of its own: one query numbers the results of an output"
        for output, names in writers.items():
            if len(names) > 1:
                conflicts.append((f"queries.{names[-1]}.into", f"output {output} is written by queries {' and '.join(names)}", fix))
        return conflicts

    def input(self, name: str) -> InputSettings:
        """Return the input called *name*; raise SettingError with the nearest name if there is none."""
        return _table_named(self.inputs, name, "input")

    def output(self, name: str) -> OutputSettings:
        """Return the output called *name*; raise SettingError with the nearest name if there is none."""
        return _table_named(self.outputs, name, "output")

    def listed_query(self, name: str) -> ListedQuery:
        """Return the query called *name*; raise SettingError with the nearest name if there is none."""
        if name not in self.queries and not self.queries:
            fix = f'add a table [queries.{name}] with script = "{name}.sql" to {DEFAULT_FILE}'
            raise SettingError(f"there is no query {name}", code="TG-SETTING-NAME", where="queries", fix=fix)
        if name not in self.queries:
            raise SettingError(f"there is no query {name}", code="TG-SETTING-NAME", where="queries", fix=choice_fix(name, self.queries))
        return self.queries[name]

    def require_secrets(self) -> None:
        """Raise SettingError if a secret of the brokers, of Redis or of Spark is not set. Jobs need them all, and begin nothing without."""
        self.kafka.client_properties()
        self.spark.properties()
        self.redis.connection_url()
        self.redis.client_options()

    def retentions_us(self) -> dict[str, int]:
        """Return how long the topic of each input and output keeps its events, microseconds; topics without a limit are left out."""
        retentions = {name: table.retention_us for name, table in self.inputs.items()}
        retentions |= {name: table.retention_us for name, table in self.outputs.items() if table.topic}
        return {name: retention_us for name, retention_us in retentions.items() if retention_us is not None}

    def origins(self) -> dict[str, tuple[str, str]]:
        """Return (value as text, origin) of each setting by dotted key: secrets masked, settings without effect empty."""
        texts = dict(_flatten(self.model_dump(mode="json", by_alias=True), ()))
        for name, settings in self.inputs.items():
            texts.update({("inputs", name, setting): "" for setting in settings.unused_settings()})
        return {
            dotted_name(key): (
                self._unset.get(key) or (MASK if is_hidden(key, text) else scrub(text)),
                self._entries.get(key, DEFAULT_ORIGIN),
            )
            for key, text in texts.items()
        }


def _driver_fix(wanted: str, other_inputs: set[str]) -> str:
    alone = f"there is no other input; add [inputs.{wanted}] or remove import_ctis_from"
    return choice_fix(wanted, other_inputs) if other_inputs else alone


def _cycles(drivers: Mapping[str, str]) -> list[list[str]]:
    """Return each cycle of names: each name's driver is the next one, the last one's is the first."""
    rings, seen = [], set[str]()
    for name in drivers:
        path: list[str] = []
        while name in drivers and name not in seen:
            seen.add(name)
            path.append(name)
            name = drivers[name]
        if name in path:
            rings.append(path[path.index(name) :])
    return rings


_T = TypeVar("_T")


def _table_named(tables: Mapping[str, _T], name: str, kind: str) -> _T:
    if name not in tables:
        fix = choice_fix(name, tables) if tables else f"add a table [{kind}s.{name}] to {DEFAULT_FILE}"
        raise SettingError(f"there is no {kind} {name}", code="TG-SETTING-NAME", where=f"{kind}s", fix=fix)
    return tables[name]


def _flatten(table: Mapping[str, Any], above: Key) -> Iterator[tuple[Key, str]]:
    for step, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, (*above, step))
        else:
            yield (*above, step), "" if value is None else plain_text(value)


def load(path: Path | None = None, overrides: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """
    Read all sources, check everything, and return the settings. This contacts no service and reads files only.

    Args:
        path: The configuration file; None: the one in ``TIDEGATE_CONFIG``, else ``tidegate.toml`` here if there is one.
        overrides: Values given by flags, by dotted key: ``{"inputs.flights.late": "3h"}``.
        env: The environment; None: that of this process.

    Raises:
        SettingError: Something is wrong; several problems come as one :class:`SettingsReport`.
    """
    env = os.environ if env is None else env
    file_layer = _file_layer(path, env)
    names = {section: file_layer.names(section) for section in ("inputs", "outputs", "references", "functions", "queries")}
    layers = [file_layer, read_environment(env, names, lambda key: keys_below(Settings, key)), read_flags(overrides or {})]
    problems = unknown_tables(layers, file_layer)
    # Only the environment is private: files are copied around, and flags are shown by `ps`.
    for layer, private in zip(layers, (False, True, False), strict=True):
        resolve_secrets(layer, env, private=private)
        problems += layer.problems
    layers.insert(0, _stack_layer(layers, env))
    entries = {key: entry for layer in layers for key, entry in layer.entries.items()}
    try:
        settings = Settings.model_validate(merge_layers(layers))
    except ValidationError as error:
        raise_problems([*problems, *explain_problems(error, Settings, entries)])
        raise AssertionError("a validation error has at least one line") from error
    raise_problems(problems)
    settings._entries.update({key: entry.origin for key, entry in entries.items()})
    unset = {key: reference for layer in layers for key, reference in layer.unset.items()}
    settings._unset.update({key: reference for key, reference in unset.items() if isinstance(entries[key].value, MissingSecret)})
    return settings


def load_assigned(path: Path | None, assignments: Sequence[str] | None) -> Settings:
    """Return the settings of a command with the flags ``--config`` and ``--set``; SettingError as for :func:`load`."""
    return load(path, parse_assignments(assignments or []))


def _file_layer(path: Path | None, env: Mapping[str, str]) -> Layer:
    if path is None and (named_path := env.get(CONFIG_VARIABLE)):
        path = Path(named_path)
    if path is not None:
        return read_file(path)
    default = Path(DEFAULT_FILE)
    return read_file(default) if default.exists() else Layer()


def _stack_layer(layers: list[Layer], env: Mapping[str, str]) -> Layer:
    """Return the addresses of a running embedded stack for the settings that give none, and the password for an address without one."""
    layer, stack = Layer(), find_stack(env)
    if stack is None:
        return layer
    given = {key: entry.value for one in layers for key, entry in one.entries.items()}
    if ("kafka", "bootstrap") not in given:
        layer.entries["kafka", "bootstrap"] = Entry(stack.bootstrap, STACK_ORIGIN)
    if ("redis", "url") not in given:
        layer.entries["redis", "url"] = Entry(stack.redis_url, STACK_ORIGIN)
    if stack.redis_password:
        # That of the journal, and those of outputs.
        for key in [key for key, url in given.items() if key[-2:] == ("redis", "url") and stack.has_address(url)]:
            if (*key[:-1], "password") not in given:
                layer.entries[*key[:-1], "password"] = Entry(stack.redis_password, STACK_ORIGIN)
    return layer
