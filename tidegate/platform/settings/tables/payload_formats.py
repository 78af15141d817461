"""
How the payloads of an input are written: the settings beside ``format``, their dependencies, and the fields that ingest reads.

Law: settings that passed name only fields that a payload of that format can have, as far as the settings alone show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Protocol

from pydantic import BeforeValidator, PlainSerializer

from tidegate.language.expressions.syntax.plain_path import listed_paths, plain_path
from tidegate.platform.settings.kinds import Kind, NotAllowed
from tidegate.platform.settings.problems import nearest_word
from tidegate.platform.settings.tables.base import Conflict, FieldType

# Settings that have an effect for one format only.
FORMATS_OF = {"csv_columns": "csv", "csv_delimiter": "csv", "avro_schema": "avro", "explode": "json"}


def _parse_event_time(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise NotAllowed("a field path such as payload.at, or an expression over the payload such as DATEADD(second, delay, base)")
    if plain_path(value) is None:
        # Imported here: only an expression needs the SQL parser.
        from tidegate.language.expressions.binding.setting_expressions import event_time_problem

        if problem := event_time_problem(value):
            raise NotAllowed(f"a field path (odd names in brackets: [event time]) or an expression over the payload; {problem}")
    return value


def _parse_delimiter(value: object) -> str:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0':
        raise NotAllowed("one character that is neither a quote nor a line end, such as ; or \\t")
    return value


def _parse_columns(value: object) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise NotAllowed("a list of names, one for each value of a record")
    if len({name.lower() for name in names}) != len(names):
        raise NotAllowed("a list of names that differ in more than case")
    return tuple(names)


EventTime = Annotated[str, BeforeValidator(_parse_event_time), Kind("field path or expression")]
Delimiter = Annotated[str, BeforeValidator(_parse_delimiter), Kind("one character")]
Columns = Annotated[tuple[str, ...], BeforeValidator(_parse_columns), PlainSerializer(list), Kind("list of names; default: none")]


class PayloadSettings(Protocol):
    """The settings of an input for the form of its payloads and the fields that ingest reads."""

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def csv_columns(self) -> tuple[str, ...]: ...
    @property
    def csv_delimiter(self) -> str: ...
    @property
    def avro_schema(self) -> str | None: ...
    @property
    def timestamp_by(self) -> str | None: ...
    @property
    def end(self) -> str | None: ...
    @property
    def over(self) -> str | None: ...
    @property
    def fields(self) -> Mapping[str, FieldType]: ...


def format_conflicts(settings: PayloadSettings) -> list[Conflict]:
    """Return the contradictions among the settings of a format, each as (setting, problem, fix)."""
    conflicts: list[Conflict] = []
    for setting, needed_by in (("csv_columns", "csv"), ("avro_schema", "avro")):
        if settings.format == needed_by and not getattr(settings, setting):
            example = 'csv_columns = ["at", "origin"]' if needed_by == "csv" else 'avro_schema = "flights.avsc"'
            conflicts.append(("format", f'format = "{needed_by}" needs {setting}', f"set {example}"))
    return [*conflicts, *_unknown_column_conflicts(settings)] if settings.format == "csv" and not conflicts else conflicts


def _unknown_column_conflicts(settings: PayloadSettings) -> list[Conflict]:
    columns = {name.lower() for name in settings.csv_columns}
    conflicts = []
    for setting, paths in paths_by_setting(settings).items():
        for path in paths:
            name = ".".join(path)
            if name.lower() not in columns:
                suggestion = nearest_word(name, settings.csv_columns)
                fix = f"did you mean {suggestion}? " if suggestion else ""
                conflicts.append((setting, f"{name} is none of csv_columns", f"{fix}columns are {', '.join(settings.csv_columns)}"))
    return conflicts


def paths_by_setting(settings: PayloadSettings) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the paths of the fields that ingest reads, by the setting that names them."""
    paths: dict[str, tuple[tuple[str, ...], ...]]
    paths = {setting: listed_paths(text) for setting, text in (("end", settings.end), ("over", settings.over)) if text}
    if settings.timestamp_by is not None:
        path = plain_path(settings.timestamp_by)
        if path is None:
            from tidegate.language.expressions.binding.input_schema import InputSchema
            from tidegate.language.expressions.binding.setting_expressions import bind_event_time, field_paths

            return {"timestamp_by": field_paths(bind_event_time(settings.timestamp_by, "timestamp_by", InputSchema("input"))), **paths}
        return {"timestamp_by": (path,), **paths}
    return paths


def format_fingerprint(settings: PayloadSettings) -> dict[str, str]:
    """Return the settings of the format that shape events, beside its name; none if older checkpoints lack them."""
    if settings.format != "csv":
        return {}
    return {"csv_columns": ",".join(settings.csv_columns), "csv_delimiter": settings.csv_delimiter}


def canonical_event_time(settings: PayloadSettings) -> str:
    """Return one text for all spellings of the same event time; empty if there is none."""
    if settings.timestamp_by is None or plain_path(settings.timestamp_by):
        return settings.timestamp_by or ""
    from tidegate.language.expressions.binding.input_schema import InputSchema
    from tidegate.language.expressions.binding.setting_expressions import canonical_text

    where = f"inputs.{settings.name}.timestamp_by"
    return canonical_text(settings.timestamp_by, where, InputSchema(settings.name, fields=settings.fields))
