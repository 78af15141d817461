"""
Where the functions in JavaScript of a script come from: ``[functions.NAME]`` of the configuration, else ``functions/NAME.js`` beside it.

Law: a script that names a function is bound to its text. The text is read and checked once, when the script is; a job carries it to its
workers, and its checkpoint is bound to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordering.errors import QueryError
from query.javascript.functions import ARGUMENTS_MAX, ScriptFunction, known, register
from query.plan.nodes import Plan, exprs_in, walk
from tidegate.basics.bounded_files import read_file_text
from tidegate.language.expressions.functions import column_functions, extension_aggregates
from tidegate.language.expressions.syntax.parse import Script
from tidegate.language.expressions.tree import Aggregate, Call
from tidegate.language.javascript.engine import Engine, ScriptLimits, check_text, failure_of

if TYPE_CHECKING:  # settings import pydantic, which is slow to load
    from tidegate.platform.settings.tables.functions import FunctionSettings

FOLDER = "functions"
_CALL = re.compile(r"\b(udf|uda)\s*\.\s*\[?([A-Za-z_]\w*)\]?\s*\(", re.IGNORECASE)
_NEEDED = ("accumulate", "computeResult")


def declare_functions(script: Script, settings: Mapping[str, FunctionSettings], beside: Path | None = None) -> Script:
    """
    Return *script* with the functions in JavaScript that it names.

    Args:
        settings: The tables [functions.NAME].
        beside: The folder of the script.

    Raises:
        QueryError: A function cannot be read, is no JavaScript, or is offered by a package too.
    """
    names = dict.fromkeys((group.lower(), name.lower()) for group, name in _CALL.findall(script.source.text))
    if not names:
        return script
    tables = {name.lower(): (name, table) for name, table in settings.items()}
    found = {}
    for group, name in names:
        if name in tables:
            spelled, table = tables[name]
            function = _configured(group, spelled, table)
        elif (path := _file_beside(beside, name)) is not None:
            function = _checked(group, path.stem, _read(path, where := f"{FOLDER}/{path.name}"), where)
        else:
            continue
        if function.called in column_functions.REGISTERED or function.called in extension_aggregates.REGISTERED:
            message, fix = f"{function.called} is offered by an installed package too", "give the function in JavaScript another name"
            raise QueryError(message, code="TG-QUERY-EXTENSION", where=script.source.file, fix=fix)
        register(function)
        found[function.called] = function.registered
    return replace(script, source=replace(script.source, functions={**script.source.functions, **found}))


def declare_recorded(script: Script, recorded: Iterable[Mapping[str, Any]]) -> Script:
    """Return *script* with functions as :func:`record_functions` has written them down."""
    found = {}
    for entry in recorded:
        function = ScriptFunction(**{**entry, "takes": tuple(entry["takes"])})
        register(function)
        found[function.called] = function.registered
    return replace(script, source=replace(script.source, functions={**script.source.functions, **found}))


def record_functions(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Return the functions in JavaScript of *plans*, to be kept as JSON."""
    return [{**asdict(function), "takes": list(function.takes)} for function in functions_of(plans)]


def functions_of(plans: Sequence[Plan]) -> tuple[ScriptFunction, ...]:
    """Return the functions in JavaScript that *plans* call, each once, by name."""
    exprs = [expr for plan in plans for node in walk(plan.root) for expr in exprs_in(node)]
    names = {expr.name if isinstance(expr, Call) else expr.function for expr in exprs if isinstance(expr, (Call, Aggregate))}
    found = [function for name in sorted(names) if (function := known(name)) is not None]
    return tuple(found)


def functions_binding(plans: Sequence[Plan]) -> dict[str, str]:
    """Return what binds a checkpoint to the texts of the functions in JavaScript; nothing if there are none."""
    functions = functions_of(plans)
    return {"functions": ", ".join(f"{function.called} {function.digest}" for function in functions)} if functions else {}


def _configured(group: str, name: str, table: FunctionSettings) -> ScriptFunction:
    where = f"functions.{name}"
    if table.code is not None:
        source = table.code
    else:
        where = str(table.script)
        source = _read(Path(where), f"functions.{name}.script")
    limits = ScriptLimits(table.time_max_us / 1_000_000, table.memory_max)
    return _checked(group, name, source, where, table.takes, table.gives, limits)


def _file_beside(folder: Path | None, name: str) -> Path | None:
    if folder is None or not (folder / FOLDER).is_dir():
        return None
    return next((path for path in sorted((folder / FOLDER).glob("*.js")) if path.stem.lower() == name), None)


def _read(path: Path, where: str) -> str:
    try:
        return read_file_text(path)
    except (OSError, UnicodeDecodeError) as error:
        message, fix = f"the function cannot be read: {error}", "give the path of a text file in UTF-8"
        raise QueryError(message, code="TG-QUERY-JAVASCRIPT", where=where, fix=fix) from None


def _checked(
    group: str,
    name: str,
    source: str,
    where: str,
    takes: Sequence[str] | None = None,
    gives: str = "any",
    limits: ScriptLimits | None = None,
) -> ScriptFunction:
    """Return the function, QueryError (TG-QUERY-JAVASCRIPT) if the text is none that can be called."""
    limits = limits or ScriptLimits()
    try:
        check_text(source, limits)
        entry, about = next(
            ((entry, about) for entry in ("main", name) if entry.isidentifier() and (about := Engine(source, entry, limits).describe())),
            ("", {}),
        )
        methods = Engine(source, entry, limits).methods(_NEEDED) if entry and group == "uda" else list(_NEEDED)
    except Exception as error:
        failure = failure_of(error, limits)
        place = f"{where}:{failure.line}" if failure.line is not None else where
        raise _unusable(f"{group}.{name} cannot be used: {failure.what}", place, "correct the script") from None
    if not entry:
        raise _unusable(f"{group}.{name} has no function main", where, "name the function main", "function main(value) { return value; }")
    if missing := [method for method in _NEEDED if method not in methods]:
        fix = "let main set this.init, this.accumulate and this.computeResult"
        raise _unusable(
            f"{group}.{name} has no {' and no '.join(missing)}", where, fix, "this.accumulate = function (value, timestamp) { ... }"
        )
    counts = (about["count"], ARGUMENTS_MAX if about["more"] else about["count"]) if group == "udf" else (1, ARGUMENTS_MAX)
    types = None if takes is None else tuple("" if spelled == "any" else spelled for spelled in takes)
    if types is not None:
        counts = len(types), len(types)
    return ScriptFunction(
        called=f"{group}.{name}".lower(),
        source=source,
        entry=entry,
        args_min=counts[0],
        args_max=counts[1],
        takes=types or (),
        gives="" if gives == "any" else gives,
        seconds=limits.seconds,
        memory_bytes=limits.memory_bytes,
    )


def _unusable(message: str, where: str, fix: str, example: str = "") -> QueryError:
    return QueryError(message, code="TG-QUERY-JAVASCRIPT", where=where, fix=fix, example=example)
