"""
The command ``tidegate config``: every setting with its value and its origin, and the manual of all settings.

Law: a job started here with the same flags would run with the printed settings; no secret is printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, get_origin

import typer

from tidegate.basics.visible_text import quote_toml, visible
from tidegate.platform.observe.terminal import TextColumn, TextTable, print_text, standard_output
from tidegate.platform.settings.load import DEFAULT_ORIGIN, Settings, load_assigned
from tidegate.platform.settings.manual import SettingDoc, as_markdown, describe_settings, field_at
from tidegate.platform.settings.sources import as_key, dotted_name


class ConfigFormat(StrEnum):
    """How the settings are printed."""

    TEXT = "text"
    JSON = "json"
    TOML = "toml"
    MARKDOWN = "markdown"
    JSON_SCHEMA = "json-schema"


def config(
    file: Annotated[
        Path | None, typer.Option("--config", help="The file to read; default: TIDEGATE_CONFIG, else tidegate.toml here.")
    ] = None,
    assignments: Annotated[list[str] | None, typer.Option("--set", help="key=value, over file and environment; may be repeated.")] = None,
    output: Annotated[ConfigFormat, typer.Option("--format", help="What is printed on standard output.")] = ConfigFormat.TEXT,
    schema: Annotated[bool, typer.Option("--schema", help="Describe all settings instead: key, unit, default, meaning.")] = False,
) -> None:
    """Print every setting with its value and its origin, after checking them all."""
    if schema or output is ConfigFormat.JSON_SCHEMA:
        _print_schema(output)
        return
    origins = load_assigned(file, assignments).origins()
    if output is ConfigFormat.JSON:
        values = {key: {"value": value, "origin": origin} for key, (value, origin) in origins.items()}
        print_text(json.dumps(values, indent=2) + "\n")
    elif output is ConfigFormat.TOML:
        print_text(as_toml(origins))
    elif output is ConfigFormat.MARKDOWN:
        print_text(_markdown_table(("setting", "value", "origin"), ((key, *pair) for key, pair in origins.items())) + "\n")
    else:
        _print_table(("setting", "value", "origin"), ((key, *pair) for key, pair in origins.items()), dim=DEFAULT_ORIGIN)


def _print_schema(output: ConfigFormat) -> None:
    docs = list(describe_settings(Settings))
    if output is ConfigFormat.MARKDOWN:
        print_text(settings_manual())
    elif output is ConfigFormat.JSON_SCHEMA:
        # A command that has no use for it does not load it.
        from tidegate.platform.settings.json_schema import json_schema

        print_text(json.dumps(json_schema(Settings), indent=2) + "\n")
    elif output is ConfigFormat.JSON:
        print_text(json.dumps([asdict(doc) for doc in docs], indent=2) + "\n")
    elif output is ConfigFormat.TOML:
        print_text(_commented_toml(docs))
    else:
        _print_table(("setting", "unit or form", "default", "meaning"), ((doc.key, doc.unit, doc.default, doc.doc) for doc in docs))


def settings_manual() -> str:
    """Return the text of docs/reference/settings.md; a test checks the file."""
    return as_markdown(describe_settings(Settings))


def as_toml(origins: Mapping[str, tuple[str, str]]) -> str:
    """Return settings as an equivalent ``tidegate.toml``, with origins as comments and masked secrets."""
    tables: dict[str, list[str]] = {}
    for key, (value, origin) in origins.items():
        table, name = split_key(key)
        if value and table:
            lines = tables.setdefault(table, [])
            if value != "{}":
                lines.append(f"{name} = {_toml_value(key, value)}  # {origin}\n")
    return "\n".join(f"[{table}]\n{''.join(lines)}" for table, lines in tables.items())


def split_key(key: str) -> tuple[str, str]:
    """Split a dotted key into its TOML table and its name there, quoted if it has dots."""
    *table, name = as_key(key.split("."))
    return dotted_name(table), quote_toml(name) if "." in name else name


def _toml_value(key: str, value: str) -> str:
    info = field_at(Settings, tuple(key.split(".")))
    number = info is not None and info.annotation in (int, int | None) and value.isdecimal()
    switch = info is not None and info.annotation is bool and bool(value)
    several = info is not None and get_origin(info.annotation) is tuple and value.startswith("[")
    return value if number or switch or several else quote_toml(value)


def _commented_toml(docs: Iterable[SettingDoc]) -> str:
    tables: dict[str, list[str]] = {}
    for doc in docs:
        table, _, name = doc.key.rpartition(".")
        default = doc.default if doc.default == "{}" else _toml_value(doc.key, doc.default)
        tables.setdefault(table, []).append(f"# {name} = {default}  # {doc.unit}: {doc.doc}\n")
    return "\n".join(f"# [{table}]\n{''.join(lines)}" for table, lines in tables.items())


def _print_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], dim: str = "") -> None:
    table = TextTable([TextColumn(name, is_whole=number == 0) for number, name in enumerate(head)])
    for row in rows:
        table.add(*row, style="dim" if dim and row[-1] == dim else "")
    standard_output().table(table)


def _markdown_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(visible(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
