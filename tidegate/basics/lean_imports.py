"""
Imports of libraries without what they bring along and no command of ours needs: a command at the prompt starts in half the time.

- pyarrow looks for pandas when the first array is made, to see whether it was given a series. It finds that there is none. Whoever
  imports pandas later, an extension of the user for example, gets it, and pyarrow finds it then.
- pyarrow.compute writes a page of documentation for each of its 280 functions, from the documentation of their options.
- structlog imports rich for tracebacks in color, which logs here never have. It and Kafka's client import asyncio for programs that use it.
- The client of Redis imports OpenTelemetry, if that is installed, for metrics of its own.
- A dataclass compiles up to six methods. All but the constructor are compiled when they are first called; from Python 3.13 on they are
  compiled together, which takes less.

Law: only the time of a start changes. No value differs, and every library works as if this were not here; ``help(pyarrow.compute.sum)``
says less, and the client of Redis has metrics of its own only in a program that has imported OpenTelemetry before it.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_Around = dict[str, Callable[[], AbstractContextManager[None]]]

# How many more objects than before live when Python looks for cycles.
_COLLECT_AT = 70_000
# What a dataclass has beside its constructor.
_LATE_METHODS = {"__repr__", "__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__setattr__", "__delattr__"}


def import_leanly() -> None:
    """Import these libraries leanly from now on, in a process of one thread so far."""
    if not any(isinstance(finder, _LeanFinder) for finder in sys.meta_path):
        gc.set_threshold(_COLLECT_AT, *gc.get_threshold()[1:])
        around: _Around = {"pyarrow": _without_pandas, "pandas": _known_to_pyarrow, "structlog": _without_rich_and_asyncio}
        around |= {"pyarrow.compute": _without_documentation, "confluent_kafka": _without_asyncio, "redis": _without_opentelemetry}
        sys.meta_path.insert(0, _LeanFinder(around))
        _compile_methods_late()


class _LeanFinder:
    """Runs the code of each module of *around* within its context manager, the first time that it is imported."""

    def __init__(self, around: _Around) -> None:
        self._around = around

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        surround = self._around.pop(name, None)
        spec = importlib.util.find_spec(name) if surround is not None else None
        if surround is None or spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_surrounded(module: ModuleType) -> None:
            with surround():
                run(module)

        spec.loader.exec_module = run_surrounded  # type: ignore[method-assign]
        return spec


@dataclass(frozen=True)
class _HidingFinder:
    """Says that there is no module *name*."""

    name: str

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == self.name:
            raise ModuleNotFoundError(f"{name} is not imported here", name=name)


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Let imports of *name* fail in the block, unless it has been imported already."""
    finder = _HidingFinder(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextmanager
def _stand_in(module: ModuleType) -> Iterator[None]:
    """Let imports in the block get *module* in place of the one of its name, unless that has been imported already."""
    if sys.modules.setdefault(module.__name__, module) is not module:
        yield
        return
    try:
        yield
    finally:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]


@contextmanager
def _without_pandas() -> Iterator[None]:
    yield
    import pyarrow as pa

    with _hidden("pandas"):
        pa.array([])


@contextmanager
def _known_to_pyarrow() -> Iterator[None]:
    yield
    if (pyarrow := sys.modules.get("pyarrow.lib")) is not None:
        # Reading the version imports pandas where that has failed before.
        pyarrow._pandas_api.version  # noqa: B018


@contextmanager
def _without_rich_and_asyncio() -> Iterator[None]:
    with _hidden("rich"), _without_asyncio():
        yield


@contextmanager
def _without_asyncio() -> Iterator[None]:
    with _stand_in(_LateModule("asyncio")):
        yield


@contextmanager
def _without_opentelemetry() -> Iterator[None]:
    with _hidden("opentelemetry"):
        yield


class _LateModule(ModuleType):
    """Stands for a module that is imported when one of its names is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:  # a library needs it at once
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


@contextmanager
def _without_documentation() -> Iterator[None]:
    reader = ModuleType("pyarrow.vendored.docscrape")
    reader.NumpyDocString = lambda text: {"Parameters": ()}  # type: ignore[attr-defined]
    dedent, textwrap.dedent = textwrap.dedent, lambda text: text
    try:
        with _stand_in(reader):
            yield
    finally:
        textwrap.dedent = dedent


def _compile_methods_late() -> None:
    create = getattr(dataclasses, "_create_fn", None)
    if create is None:
        return

    def create_late(name: str, *arguments: Any, **options: Any) -> Callable[..., Any]:
        if name not in _LATE_METHODS:
            method: Callable[..., Any] = create(name, *arguments, **options)
            return method
        return _LateMethod(name, lambda: create(name, *arguments, **options)).method()

    dataclasses._create_fn = create_late  # type: ignore[attr-defined]


class _LateMethod:
    """A method that *create* makes when it is first called; it then takes the place of this one in its class."""

    def __init__(self, name: str, create: Callable[[], Callable[..., Any]]) -> None:
        self._name, self._create = name, create
        self._created: Callable[..., Any] | None = None

    def method(self) -> Callable[..., Any]:
        """Return the function to be put into the class meanwhile."""

        def late(self_: object, *arguments: object) -> object:
            created = self._created or self._replace(late, type(self_))
            return created(self_, *arguments)

        late.__name__ = self._name
        return late

    def _replace(self, late: Callable[..., Any], kind: type) -> Callable[..., Any]:
        created = self._create()
        created.__qualname__ = late.__qualname__
        for owner in kind.__mro__:
            if owner.__dict__.get(self._name) is late:
                setattr(owner, self._name, created)
        self._created = created
        return created
