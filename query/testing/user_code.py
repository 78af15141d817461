"""
The user's functions, aggregates and operators of a test: known to scripts while it runs, and loaded anew at each simulated restart.

A restarted worker has imported its modules anew. Therefore the code is pickled by value before the first run, with the globals of its
modules, and each restart loads it from there. Law: state that a function keeps in a global, a closure or an attribute does not survive
a restart.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.cloudpickle import cloudpickle as class_tracking

from query import extensions
from query.extensions import AggregateFunction, ScalarFunction
from query.javascript.functions import known
from query.plan import operator_extensions
from query.plan.operator_extensions import OperatorExtension
from tidegate.basics.package_offers import Registry, find_offers, load_offer
from tidegate.language.expressions.functions import column_functions, extension_aggregates

UserFunction = ScalarFunction | AggregateFunction | OperatorExtension
_OWN = {"ordering", "ingest", "query", "sinks", "tidegate"}


def find_installed(sql: str) -> dict[str, UserFunction]:
    """Return the functions, aggregates and operators of installed packages that a script names."""
    named: dict[str, UserFunction] = {}
    for group, prefix in ((extensions.FUNCTIONS, r"udf\."), (extensions.AGGREGATES, r"uda\."), (extensions.OPERATORS, r"\b")):
        for name, offer in find_offers(group, extensions._FAIL, only="").items():
            if re.search(rf"{prefix}\[?{re.escape(name)}\b", sql, re.IGNORECASE):
                named[name] = load_offer(offer, extensions._FAIL)
    return named


def find_place(function: UserFunction) -> str | None:
    """Return where a module has a function, as ``FILE:NAME``; None if it is no name of a module that has a file."""
    for module in filter(None, map(sys.modules.get, _modules_of(function))):
        names = [name for name, value in vars(module).items() if value is function]
        if names and getattr(module, "__file__", None):
            return f"{module.__file__}:{names[0]}"
    return None


def load_place(place: str, folder: Path) -> UserFunction:
    """
    Return what :func:`find_place` has found; a file's path may start in *folder*. The module finds those beside it, unless others have
    their names. Raises whatever the module does; ValueError, AttributeError: there is nothing of this kind.
    """
    file, _, name = place.rpartition(":")
    path = (folder / file).resolve()
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"there is no module {path}")
    module = importlib.util.module_from_spec(spec)
    beside = str(path.parent)
    sys.path += [] if beside in sys.path else [beside]
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    function = getattr(module, name)
    if not isinstance(function, UserFunction):
        raise ValueError(f"it is a {type(function).__name__}")
    return function


def pickle_by_value(value: Any, *modules: str) -> bytes:
    """Return *value* with the code and the globals of the modules that its functions come from."""
    registered = []
    for name in {*modules, *_modules_of(value)}:
        module = sys.modules.get(name)
        if module is not None and name != "__main__" and name.partition(".")[0] not in _OWN:
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
            registered.append(module)
    try:
        pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
        return pickled
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)  # type: ignore[no-untyped-call]


def load_anew(pickled: bytes) -> Any:
    """Return what was pickled, as an interpreter has it that has never run it."""
    # The pickler would give back a class that it has met before, with what has been written to its attributes since.
    class_tracking._DYNAMIC_CLASS_TRACKER_BY_CLASS.clear()
    class_tracking._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
    return cloudpickle.loads(pickled)


def register_functions(functions: Mapping[str, UserFunction]) -> None:
    """Make functions known to scripts under their names."""
    for name, function in functions.items():
        extensions.register(name, function)


@contextmanager
def functions_restored() -> Iterator[None]:
    """Let scripts know afterwards what they knew before, whatever has been registered meanwhile."""
    registries: list[Registry[Any]] = [column_functions.REGISTERED, extension_aggregates.REGISTERED, operator_extensions.REGISTERED]
    before = [dict(registry._registered) for registry in registries]
    try:
        yield
    finally:
        for registry, earlier in zip(registries, before, strict=True):
            # A function in JavaScript is registered once in a process; its name has the digest of its text, so it meets no other.
            scripts = {name: extension for name, extension in registry._registered.items() if known(name) is not None}
            registry._registered.clear()
            registry._registered.update(earlier | scripts)


def _modules_of(value: Any) -> Iterator[str]:
    parts = list(value.values()) if isinstance(value, Mapping) else [value]
    for part in parts:
        for code in (part, getattr(part, "compute", None), getattr(part, "make", None), getattr(part, "read", None), type(part)):
            name = getattr(code, "__module__", None)
            if isinstance(name, str) and name.partition(".")[0] not in _OWN and name != "builtins":
                yield name
