"""
The JSON schema of ``tidegate.toml``, by which editors complete and check it.

Law: the schema is made from the classes that check the settings, as the manual is. It takes every file that they take; what they refuse
because of two settings together, or because of a value's text, it may take.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from tidegate.platform.settings.manual import fields_by_key, table_of, unit_of

SCHEMA = "http://json-schema.org/draft-07/schema#"
_NAME = "^[A-Za-z_][A-Za-z0-9_]*$"
_SCALAR = {"type": ["string", "number", "boolean"]}
# Numbers and switches may be texts too, as in the environment.
_TEXTS = {int: ["integer", "string"], float: ["number", "string"], bool: ["boolean", "string"], str: ["string"]}


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a file with the settings of *model*."""
    return {"$schema": SCHEMA, "title": "tidegate.toml", **_table(model)}


def _table(model: type[BaseModel]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key, info in fields_by_key(model).items():
        inner, named = table_of(info)
        if inner is None:
            properties[key] = _setting(info)
        elif named:
            properties[key] = {"type": "object", "patternProperties": {_NAME: _table(inner)}, "additionalProperties": False}
        else:
            properties[key] = _table(inner) | ({"description": info.description} if info.description else {})
    # Tables of stores that installed packages bring are not known here.
    is_open = model.model_config.get("extra") == "allow"
    required = [key for key, info in fields_by_key(model).items() if info.is_required()]
    closing = {} if is_open else {"additionalProperties": False}
    return {"type": "object", "properties": properties, **closing, **({"required": required} if required else {})}


def _setting(info: FieldInfo) -> dict[str, Any]:
    unit = unit_of(info)
    meaning = {"description": f"{info.description or ''} ({unit})"}
    return {**_kind(info.annotation, "duration" in unit or "size" in unit, "list" in unit), **meaning}


def _kind(annotation: Any, is_measure: bool, takes_list: bool) -> dict[str, Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0], is_measure, takes_list)
    if origin in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return _kind(kinds[0], is_measure, takes_list) if len(kinds) == 1 else {"anyOf": [_kind(k, is_measure, takes_list) for k in kinds]}
    if origin is Literal:
        return {"enum": list(get_args(annotation))}
    if origin is tuple:
        item = _kind(get_args(annotation)[0], is_measure, False)
        return {"anyOf": [{"type": "array", "items": item}, {"type": "string"}]}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _kind(get_args(annotation)[1], is_measure, False)}
    if annotation is SecretStr:
        return dict(_SCALAR)
    if is_measure:
        return {"type": ["integer", "string"]}
    if annotation is str and takes_list:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
    return {"type": list(_TEXTS[annotation])} if annotation in _TEXTS else {}
