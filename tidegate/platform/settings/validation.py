"""
Turns each error of pydantic into a problem for a user, a :class:`~ordering.errors.SettingError`.

Law: every error becomes exactly one problem with the key, the value as given, its origin, and the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ordering.errors import SettingError
from tidegate.basics.secret_masking import MASK
from tidegate.platform.settings.kinds import NotAllowed, plain_text
from tidegate.platform.settings.manual import field_at, keys_below, unit_of
from tidegate.platform.settings.problems import choice_fix, conflicting_settings, unknown_setting, unknown_store, wrong_name, wrong_value
from tidegate.platform.settings.secret_settings import Key, is_secret
from tidegate.platform.settings.sources import Entry, dotted_name
from tidegate.platform.settings.tables.base import Contradiction

_BOUNDS = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}
_WORDS = {
    "int": "a whole number",
    "string": "text in quotes",
    "tuple": 'a list, such as ["first", "second"]',
    "model": "a table",
    "dict": "a table",
    "is": "a table",
}


def explain_problems(error: ValidationError, model: type[BaseModel], entries: Mapping[Key, Entry]) -> list[SettingError]:
    """Return all problems in the order of *entries*, the given values; *error* comes from the validation of *model*."""
    order = list(entries)
    keyed_problems = [problem for details in error.errors() for problem in _problems(details, model, entries)]
    return [problem for _, problem in sorted(keyed_problems, key=lambda pair: _position(pair[0], order))]


def _position(key: Key, order: list[Key]) -> int:
    return next((place for place, given in enumerate(order) if given[: len(key)] == key), len(order))


def _problems(details: ErrorDetails, model: type[BaseModel], entries: Mapping[Key, Entry]) -> Iterator[tuple[Key, SettingError]]:
    key: Key = tuple(str(step) for step in details["loc"])
    kind = details["type"]
    cause = details.get("ctx", {}).get("error")
    # A consequence of another problem.
    if kind == "default_factory_not_called":
        return
    if key and key[-1] == "[key]":
        key = key[:-1]
        yield key, wrong_name(dotted_name(key), _origin(key, entries), f"allowed: {cause}")
    elif isinstance(cause, Contradiction):
        for setting, what, fix in cause.conflicts:
            conflict_key = (*key, *setting.split(".")) if setting else key
            yield conflict_key, conflicting_settings(f"{dotted_name(key)}: {what}" if key else what, _origin(conflict_key, entries), fix)
    elif kind == "extra_forbidden" and key[0] == "outputs" and isinstance(details["input"], dict):
        yield key, unknown_store(key[-1], _origin(key, entries), _stores(model, key[:-1]))
    elif kind == "extra_forbidden" and key[0] == "outputs" and (tables := _stores_with(key, model)):
        what = f"{key[-1]} is no setting of an output, but of a store"
        yield (
            key,
            SettingError(what, code="TG-SETTING-UNKNOWN", where=_origin(key, entries), fix=f"write it in the table {' or '.join(tables)}"),
        )
    elif kind == "extra_forbidden":
        yield key, unknown_setting(dotted_name(key), _value_text(key, details, entries), _origin(key, entries), keys_below(model, key[:-1]))
    elif kind == "missing" and (info := field_at(model, key)) is not None:
        what, fix = f"{dotted_name(key)} is missing", f"add {key[-1]} ({unit_of(info)}): {info.description}"
        yield key, SettingError(what, code="TG-SETTING-MISSING", where=_origin(key, entries), fix=fix)
    else:
        is_no_table = not isinstance(details["input"], dict) and bool(keys_below(model, key))
        fix = f"it is a table: write [{dotted_name(key)}]" if is_no_table else _advice(details, cause, key, model)
        yield key, wrong_value(dotted_name(key), _value_text(key, details, entries), _origin(key, entries), fix)


def _stores(model: type[BaseModel], output: Key) -> list[str]:
    return [name for name in sorted(keys_below(model, output)) if keys_below(model, (*output, name))]


def _stores_with(key: Key, model: type[BaseModel]) -> list[str]:
    """Return the tables of stores that have the setting at *key*, which an output has not."""
    *output, name = key
    owners = [store for store in _stores(model, key[:-1]) if name in keys_below(model, (*output, store))]
    if output[1] in owners:
        return [f"[outputs.NAME.{output[1]}]"]
    return [f"[{dotted_name((*output, store))}]" for store in owners]


def _advice(details: ErrorDetails, cause: object, key: Key, model: type[BaseModel]) -> str:
    kind = details["type"]
    context = details.get("ctx", {})
    if isinstance(cause, NotAllowed):
        return f"allowed: {cause}"
    if kind == "string_too_short":
        return "allowed: text that is not empty"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", str(context["expected"]))
        return _type_fix(str(details["input"])) if "nvarchar(max)" in choices else choice_fix(str(details["input"]), choices)
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"allowed: {words} {context[name]}"
    if kind == "string_pattern_mismatch" and (info := field_at(model, key)) is not None:
        return f"allowed: {unit_of(info)}"
    return f"allowed: {_WORDS.get(kind.partition('_')[0], details['msg'].removeprefix('Value error, '))}"


def _type_fix(word: str) -> str:
    """Return the advice for an unknown type of a field, which scripts give too: int is a bigint, however it resembles bit."""
    from tidegate.language.expressions.kinds import VALUE_KINDS
    from tidegate.language.expressions.syntax.errors import suggest_type

    allowed = f"allowed: {', '.join(sorted(kind.asa_name for kind in VALUE_KINDS))}"
    advice = suggest_type(word)
    return allowed if advice.startswith("types are") else f"{advice}; {allowed}"


def _value_text(key: Key, details: ErrorDetails, entries: Mapping[Key, Entry]) -> str:
    if is_secret(key):
        return MASK
    value = entries[key].value if key in entries else details["input"]
    if isinstance(value, dict):
        return "{...}" if value else "{}"
    # A wrong address such as user:password@host is no URL, but its password must not be shown either.
    return re.sub(r":[^:@\s]+@", f":{MASK}@", f'"{value}"' if isinstance(value, str) else _json(value))


def _json(value: object) -> str:
    try:
        return plain_text(value)
    except TypeError:  # a TOML date
        return str(value)


def _origin(key: Key, entries: Mapping[Key, Entry]) -> str:
    if key in entries:
        return entries[key].origin
    # A default has no origin: the origin of the table's first setting is shown.
    inside = [entry.origin for above in (key, key[:-1]) for given, entry in entries.items() if above and given[: len(above)] == above]
    return inside[0] if inside else dotted_name(key)
