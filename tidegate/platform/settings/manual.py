"""
The manual of all settings: keys, units, defaults and meanings.

Law: the manual is made from the classes that check the settings, so it cannot differ from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidegate.platform.settings.kinds import Kind, plain_text
from tidegate.platform.settings.tables.base import Table


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One setting: its key, the form of its value (with the unit), its default as written, and its meaning."""

    key: str
    unit: str
    default: str
    doc: str


def describe_settings(model: type[BaseModel], above: str = "") -> Iterator[SettingDoc]:
    """Describe every setting of *model*, table by table; NAME stands for the name of an input or output."""
    for key, info in fields_by_key(model).items():
        path = f"{above}{key}"
        inner, named = table_of(info)
        if inner is not None:
            yield from describe_settings(inner, f"{path}.NAME." if named else f"{path}.")
        else:
            yield SettingDoc(path, unit_of(info), _default_of(info), info.description or "")


def fields_by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields that a user may write in the table *model*, by their keys."""
    return {info.alias or name: info for name, info in model.model_fields.items() if info.alias != "__name__"}


def keys_below(model: type[BaseModel], path: tuple[str, ...]) -> set[str]:
    """Return the keys allowed in the table at *path*; empty if any name is allowed or there is no such table."""
    for depth, step in enumerate(path):
        info = fields_by_key(model).get(step)
        inner, named = (_table_of_package(model, step), False) if info is None else table_of(info)
        if inner is None:
            return set()
        if named:
            return keys_below(inner, path[depth + 2 :]) if len(path) > depth + 1 else set()
        model = inner
    return set(fields_by_key(model))


def field_at(model: type[BaseModel], path: tuple[str, ...]) -> FieldInfo | None:
    """Return the field at a key path, or None."""
    info: FieldInfo | None = None
    current: type[BaseModel] | None = model
    steps = iter(path)
    for step in steps:
        info = fields_by_key(current).get(step) if current is not None else None
        if info is None and (current is None or (current := _table_of_package(current, step)) is None):
            return None
        if info is not None:
            current, named = table_of(info)
            if named:
                next(steps, None)
    return info


def unit_of(info: FieldInfo) -> str:
    """Return the form of a setting: its kind, or the words allowed."""
    kinds = [note for note in info.metadata if isinstance(note, Kind)]
    if kinds:
        return kinds[-1].unit
    for annotation in (info.annotation, *get_args(info.annotation)):
        nested = [note for note in getattr(annotation, "__metadata__", ()) if isinstance(note, Kind)]
        if nested:
            return nested[-1].unit
        if get_origin(annotation) is Literal:
            words = " | ".join(str(word) for word in get_args(annotation))
            return words if annotation is info.annotation else f"table of {words}"
    return "text"


def _table_of_package(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    return model.table_of_package(key) if issubclass(model, Table) else None


def table_of(info: FieldInfo) -> tuple[type[BaseModel] | None, bool]:
    """Return the table class of a field, and whether the field has one table for each name."""
    annotation: Any = info.annotation
    if get_origin(annotation) in (Union, UnionType):
        # A table that may be left out.
        annotation = next((kind for kind in get_args(annotation) if kind is not type(None)), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) is dict:
        value = get_args(annotation)[1]
        if isinstance(value, type) and issubclass(value, BaseModel):
            return value, True
    return None, False


def _default_of(info: FieldInfo) -> str:
    if "default:" in unit_of(info):
        return ""
    if info.default is PydanticUndefined:
        return "" if info.is_required() else "{}"
    for note in info.metadata:
        if (write := getattr(note, "func", None)) is not None and type(note).__name__ == "PlainSerializer":
            return plain_text(write(info.default))
    return "" if info.default is None else plain_text(info.default)


def as_markdown(docs: Iterator[SettingDoc]) -> str:
    """Write docs/reference/settings.md: one table of settings for each table of ``tidegate.toml``."""
    out = [_HEAD]
    section = ""
    for doc in docs:
        table, _, key = doc.key.rpartition(".")
        if table != section:
            section = table
            out.append(f"\n## [{table}]\n\n| setting | unit or form | default | meaning |\n|---|---|---|---|\n")
        cells = [f"`{key}`", doc.unit, f"`{doc.default}`" if doc.default else "", doc.doc]
        out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(out)


_HEAD = """# Settings

Written by `tidegate config --schema --format markdown`; do not edit.

Settings come from `tidegate.toml` in the working directory (another file: `--config FILE` or `TIDEGATE_CONFIG`), from
environment variables and from flags; the later wins. `inputs.flights.late` is `TIDEGATE_INPUTS__FLIGHTS__LATE` in the
environment and `--set inputs.flights.late=3h` as a flag. `kafka.client."sasl.password"` is
`TIDEGATE_KAFKA__CLIENT__SASL_PASSWORD`; the other free tables keep the case of their names, so in the environment they
are given whole, as JSON. A secret is written as `file:PATH` or `env:NAME`; only an environment variable may hold the secret itself
([security](../operate/security.md)). `tidegate config` prints every value with its origin. A wrong or unknown setting is refused
before anything starts.

Paths of scripts, functions, Avro schemas, reference data and of the files and Delta tables of results begin at the folder of
`tidegate.toml`. All other paths - checkpoints, certificates, secrets - and those in variables and flags begin at the working directory.

Durations are a number and a unit: `us`, `ms`, `s`, `m`, `h`, `d`, also together: `1h30m`.

Editors complete and check the file by its JSON schema, which `tidegate new` writes beside it; `tidegate config --format json-schema`
prints it ([editors](../queries/editors.md#tidegatetoml)).
"""
