"""
The sources of settings: the embedded stack, ``tidegate.toml``, ``TIDEGATE_*`` variables, flags; the later one wins.

Each source becomes a :class:`Layer`: values by key path, each with an origin that a user can find (``tidegate.toml:12``).
Law: reading a source checks no value; it only checks that the source can be read and names settings.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordering.errors import SettingError
from tidegate.basics.bounded_files import SECRET_BYTES_MAX, read_file_text
from tidegate.basics.secret_masking import remember, secrets_in
from tidegate.platform.settings.kinds import MissingSecret
from tidegate.platform.settings.problems import (
    choice_fix,
    exposed_broker_password,
    exposed_secret,
    unknown_setting,
    unset_secret,
    wrong_value,
)
from tidegate.platform.settings.secret_settings import (
    BROKERS,
    SECRET_URLS,
    Key,
    broker_passwords,
    free_depth,
    is_address,
    is_property,
    is_refused,
    is_secret,
    may_name_secret,
)

ENV_PREFIX = "TIDEGATE_"
CONFIG_VARIABLE = "TIDEGATE_CONFIG"
# The stores whose tables are described here.
OWN_STORES = ("clickhouse", "delta", "http", "iceberg", "postgres", "redis")
# Secrets that must have a certain form, with a valid value in place of a refused one.
_SECRET_FORMS: Mapping[Key, str] = {("http", "secret"): f"whsec_{'unresolved' * 4}", BROKERS: "unresolved:9092"}

# The settings, below the names of tables, that are paths of scripts, schemas and data: *: any name.
_PROJECT_PATHS = {
    "queries": (("script",),),
    "outputs": (("query",), ("files",), ("delta", "path")),
    "functions": (("script",),),
    "inputs": (("avro_schema",),),
    "references": (("path",), ("effective", "*"), ("delta", "path")),
}
# Those that may be the name of a query which an installed package provides.
_SCRIPTS = (("queries", "script"), ("outputs", "query"))

_HEADER = re.compile(r"\s*\[\[?(?P<path>[^\[\]]+)\]\]?\s*(#.*)?$")
_STEP = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_ASSIGNMENT = re.compile(rf"\s*(?P<path>{_STEP}(?:\s*\.\s*{_STEP})*)\s*=(?P<rest>.*)$")
_ERROR_PLACE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One value as given, not checked yet."""

    value: Any
    origin: str


@dataclass
class Layer:
    """The values of one source by key, and the problems of reading it."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    problems: list[SettingError] = field(default_factory=list)
    # The secrets whose file or variable is not there, as they were written.
    unset: dict[Key, str] = field(default_factory=dict)

    def as_tables(self) -> dict[str, Any]:
        """Return the values as nested tables, as :class:`~tidegate.platform.settings.load.Settings` needs them."""
        out: dict[str, Any] = {}
        for key, entry in self.entries.items():
            table = out
            for step in key[:-1]:
                inner = table.get(step)
                table[step] = table = {**inner} if isinstance(inner, dict) else {}
            table[key[-1]] = entry.value
        return out

    def names(self, section: str) -> set[str]:
        return {key[1] for key in self.entries if len(key) > 1 and key[0] == section}


def merge_layers(layers: Iterable[Layer]) -> dict[str, Any]:
    """Return the values of all layers as nested tables, the weakest layer first: a later value takes the place of an earlier one."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = _merge(merged, layer.as_tables())
    return merged


def _merge(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**weaker}
    for step, value in stronger.items():
        before = merged.get(step)
        merged[step] = _merge(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged


def as_key(steps: Iterable[str]) -> Key:
    """Return the key of *steps*; steps below a free table are joined into one."""
    path = tuple(steps)
    depth = free_depth(path)
    return path if depth is None or len(path) <= depth else (*path[:depth], ".".join(path[depth:]))


def dotted_name(key: Iterable[str]) -> str:
    """Write a key as a user does: ``inputs.flights.late``."""
    return ".".join(key)


# ----- tidegate.toml


def read_file(path: Path) -> Layer:
    """Read a TOML file; origins are ``PATH:LINE``. Raises SettingError: there is none, or (with line and column) it is not TOML."""
    name = str(path)
    try:
        text = read_file_text(path, encoding="utf-8-sig")
        document = tomllib.loads(text)
    except FileNotFoundError:
        fix = "check --config and TIDEGATE_CONFIG"
        raise SettingError(f"there is no file {name}", code="TG-SETTING-FILE", where=name, fix=fix) from None
    except (OSError, UnicodeDecodeError) as error:
        fix = "make it a readable UTF-8 file"
        raise SettingError(f"{name} cannot be read: {error}", code="TG-SETTING-FILE", where=name, fix=fix) from None
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(str(error), text, name) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, tables in tables without end
        raise _syntax_error(str(error), "", name) from None
    # tomllib gives no positions of keys, so a second pass finds them.
    lines = locate_keys(text)
    layer = Layer()
    for steps, value in _leaves(document, ()):
        key = as_key(steps)
        layer.entries[key] = Entry(_beside(path.parent, key, value), f"{name}:{_line_of(lines, steps)}")
    return layer


def _beside(folder: Path, key: Key, value: Any) -> Any:
    """
    Return the value of a setting of a file in *folder*. A path of a script, of a schema or of data begins there, so that the job which
    writes and whoever reads mean the same place. It is made absolute unless this is the working folder: whoever else puts that folder
    before it finds the same file.
    """
    paths = _PROJECT_PATHS.get(key[0], ())
    is_path = key[2:] in paths or (*key[2:3], "*") in paths
    if not is_path or not isinstance(value, str) or not value or "://" in value or folder.absolute() == Path.cwd():
        return value
    there = folder.absolute() / value
    is_name = (key[0], key[-1]) in _SCRIPTS and not there.suffix and not there.exists()
    return value if is_name else str(there)


def _syntax_error(message: str, text: str, name: str) -> SettingError:
    place = _ERROR_PLACE.search(message)
    last_line = text.count("\n") + 1
    line, column = (int(place["line"]), int(place["column"])) if place and place["line"] else (last_line, 1)
    what = _ERROR_PLACE.sub("", message)
    fix = "put text in quotes, tables in [brackets], one setting a line"
    example = '[kafka]\nbootstrap = "localhost:9092"'
    return SettingError(f"not valid TOML: {what}", code="TG-SETTING-SYNTAX", where=f"{name}:{line}:{column}", fix=fix, example=example)


def _leaves(table: Mapping[str, Any], above: Key) -> Iterable[tuple[Key, Any]]:
    for step, value in table.items():
        steps = (*above, step)
        if isinstance(value, dict) and value:
            yield from _leaves(value, steps)
        else:
            yield steps, value


def locate_keys(text: str) -> dict[Key, int]:
    """Return the line (from 1) of each table and key of a valid TOML document."""
    lines: dict[Key, int] = {}
    table: Key = ()
    closing = ""
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        # Inside of multi-line text or an array nothing is a key.
        if closing or depth > 0:
            closing, depth = _follow_open_text(line, closing, depth)
            continue
        if header := _HEADER.match(line):
            table = _split_path(header["path"])
            lines.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault((*table, *_split_path(assignment["path"])), number)
            closing, depth = _follow_open_text(assignment["rest"], "", 0)
    return lines


def _follow_open_text(text: str, closing: str, depth: int) -> tuple[str, int]:
    """Follow multi-line text and arrays over one line; return the quotes that end an open text, and the number of open brackets."""
    tokens = re.findall(r'"""|\'\'\'|\\.|"(?:[^"\\]|\\.)*"|\'[^\']*\'|[\[\]{}#]|.', text)
    for token in tokens:
        if closing:
            closing = "" if token == closing else closing
        elif token in {'"""', "'''"}:
            closing = token
        elif token == "#":
            break
        else:
            depth += (token in "[{") - (token in "]}") if len(token) == 1 else 0
    return closing, depth


def _split_path(path: str) -> Key:
    return tuple(step.strip().strip("\"'") for step in re.findall(_STEP, path))


def _line_of(lines: Mapping[Key, int], steps: Key) -> int:
    while steps and steps not in lines:
        steps = steps[:-1]
    return lines.get(steps, 1)


# ----- TIDEGATE_* variables


def read_environment(env: Mapping[str, str], known_names: Mapping[str, set[str]], keys_of: Callable[[Key], set[str]]) -> Layer:
    """
    Read ``TIDEGATE_SECTION__KEY`` variables. Variables without ``__`` belong to others, unless they nearly name a setting.

    Args:
        known_names: Inputs, outputs and references of the file, by section: variables lose their case, these names restore it.
        keys_of: Returns the keys allowed below a path, to recognise a variable with one underscore too few.
    """
    layer = Layer()
    for variable, text in sorted(env.items()):
        if not variable.startswith(ENV_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        steps = variable.removeprefix(ENV_PREFIX).lower().split("__")
        if len(steps) == 1:
            _note_single_underscore(layer, variable, text, keys_of)
        else:
            _add_variable(layer, variable, _restore_case(steps, known_names), text)
    return layer


def _note_single_underscore(layer: Layer, variable: str, text: str, keys_of: Callable[[Key], set[str]]) -> None:
    words = variable.removeprefix(ENV_PREFIX).lower()
    candidates = [
        f"{ENV_PREFIX}{section}__{key}".upper() for section in keys_of(()) for key in keys_of((section,)) if words == f"{section}_{key}"
    ]
    if candidates:
        layer.problems.append(unknown_setting(variable, json.dumps(text), "environment", candidates))


def _restore_case(steps: list[str], known_names: Mapping[str, set[str]]) -> Key:
    if len(steps) > 1 and steps[0] in known_names:
        steps[1] = next((name for name in known_names[steps[0]] if name.lower() == steps[1]), steps[1])
    return tuple(steps)


def _add_variable(layer: Layer, variable: str, steps: Key, text: str) -> None:
    origin = f"environment variable {variable}"
    depth = free_depth(steps)
    if depth == len(steps):
        _add_table(layer, origin, steps, text)
    elif depth is not None and steps[:2] != ("kafka", "client"):
        example = f'{ENV_PREFIX}{"__".join(steps[:depth]).upper()}=\'{{"name": "value"}}\''
        fix = "names below this table keep their case: give the whole table as JSON"
        layer.problems.append(wrong_value(variable, json.dumps(text), "environment", fix, example))
    elif depth is not None:
        # librdkafka's properties are written with dots, which variables cannot have.
        layer.entries[(*steps[:2], ".".join(steps[2:]).replace("_", "."))] = Entry(text, origin)
    else:
        layer.entries[steps] = Entry(text, origin)


def _add_table(layer: Layer, origin: str, steps: Key, text: str) -> None:
    try:
        table = json.loads(text)
    except ValueError:
        table = None
    if not isinstance(table, dict):
        layer.problems.append(wrong_value(dotted_name(steps), json.dumps(text), origin, "a JSON table", '{"name": "value"}'))
        return
    for name, value in table.items():
        layer.entries[(*steps, name)] = Entry(value, origin)


# ----- flags


def read_flags(overrides: Mapping[str, str]) -> Layer:
    """Read the flags ``--set`` as keys and values: ``{"kafka.bootstrap": "..."}``."""
    layer = Layer()
    for name, text in overrides.items():
        steps = as_key(name.strip().split("."))
        if free_depth(steps) == len(steps):
            _add_table(layer, "flag", steps, text)
        else:
            layer.entries[steps] = Entry(text, "flag")
    return layer


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Return ``--set key=value`` flags as overrides; raise SettingError if one has no ``=`` or no key."""
    out: dict[str, str] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            what = f"--set {assignment} gives no value"
            raise SettingError(what, code="TG-SETTING-FLAG", where="flag", fix="write key=value", example="--set inputs.flights.late=3h")
        out[key.strip()] = value
    return out


# ----- secrets, and who is addressed


def resolve_secrets(layer: Layer, env: Mapping[str, str], *, private: bool) -> None:
    """
    Replace ``file:PATH`` and ``env:NAME`` in secret settings by the secrets themselves, and register all secrets for masking.
    With *private*, only this user can read the source, so secrets may be written there; otherwise they are refused.
    """
    for key, entry in list(layer.entries.items()):
        schemes = ("env", "file") if may_name_secret(key) else ("env",) if is_property(key) else ()
        try:
            resolved = _resolve(entry, env, schemes) if isinstance(entry.value, str) else entry
        except _NotFound as error:
            problem = unset_secret(dotted_name(key), entry.value, entry.origin, error.what, error.fix)
            # Whether the class of an installed package takes such a value is not known.
            if key[:1] == ("outputs",) and len(key) == 4 and key[2] not in OWN_STORES:
                layer.problems.append(problem)
                resolved = _placeholder(key, entry)
            else:
                layer.unset[key] = entry.value
                resolved = Entry(MissingSecret(entry.value, problem), entry.origin)
        if isinstance(resolved.value, str):
            is_whole = is_secret(key) or is_address(key) or ("file" in schemes and resolved is not entry)
            _remember_secrets(key, resolved.value, is_whole=is_whole)
        if not private and resolved is entry and is_refused(key, entry.value):
            name, origin = dotted_name(key), entry.origin
            layer.problems.append(
                exposed_broker_password(name, origin) if key == BROKERS else exposed_secret(name, origin, schemes or ("env",))
            )
            resolved = _placeholder(key, entry)
        layer.entries[key] = resolved


def _remember_secrets(key: Key, value: str, *, is_whole: bool) -> None:
    """Have all of a setting's value masked from now on, or the secrets that stand in it."""
    for secret in [value] if is_whole else [*secrets_in(value, is_address=is_property(key)), *broker_passwords(key, value)]:
        remember(secret)


def _placeholder(key: Key, entry: Entry) -> Entry:
    """Return a valid value in place of a refused one, so that it is not reported again for another reason."""
    return Entry({**SECRET_URLS, **_SECRET_FORMS}.get(key[-2:], "unresolved"), entry.origin)


class _NotFound(Exception):
    """The file or variable of a secret is missing."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.what, self.fix = what, fix


def _resolve(entry: Entry, env: Mapping[str, str], schemes: Collection[str]) -> Entry:
    scheme, colon, target = entry.value.partition(":")
    if not colon or scheme not in schemes:
        return entry
    if scheme == "env":
        if target not in env:
            raise _NotFound(f"the environment variable {target} is not set", f"set the environment variable {target}")
        return Entry(env[target], f"{entry.origin}, from {entry.value}")
    try:
        return Entry(read_file_text(Path(target), SECRET_BYTES_MAX).rstrip("\r\n"), f"{entry.origin}, from {entry.value}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise _NotFound(f"the file {target} cannot be read: {reason}", f"make {target} a readable text file") from None


# The settings of which one makes a table, by section.
_MAKING = {
    "inputs": {"topic"},
    "outputs": {"topic", "files"},
    "references": {"path"},
    "functions": {"script", "code"},
    "queries": {"script"},
}


def unknown_tables(layers: list[Layer], file_layer: Layer) -> list[SettingError]:
    """Find variables and flags for an input or output that is neither in the file nor created by them: a misspelled name."""
    problems = []
    for section, making in _MAKING.items():
        made_here = {key[1] for layer in layers for key in layer.entries if len(key) == 3 and key[0] == section and key[2] in making}
        known = file_layer.names(section) | made_here
        for layer in layers:
            for name in sorted(layer.names(section) - known):
                problems.append(_unknown_table(section, name, layer, known))
                # Without its settings, so that checking them does not report the same name again.
                for key in [key for key in layer.entries if key[:2] == (section, name)]:
                    del layer.entries[key]
    return problems


def _unknown_table(section: str, name: str, layer: Layer, known: set[str]) -> SettingError:
    entry = next(entry for key, entry in layer.entries.items() if key[:2] == (section, name))
    needed = {"references": "path", "queries": "script", "functions": "script"}.get(section, "topic")
    fix = choice_fix(name, known) + f"; a new one needs {section}.{name}.{needed} as well"
    one = "query" if section == "queries" else section[:-1]
    return SettingError(f"there is no {one} {name}", code="TG-SETTING-NAME", where=entry.origin, fix=fix)
