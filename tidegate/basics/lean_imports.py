"""
Imports of libraries without what they bring along and no command of ours needs: a command at the prompt starts in half the time.

- pyarrow looks for pandas when the first array is made, to see whether it was given a series. It is told that there is none. Whoever
  imports pandas later, an extension of the user for example, gets it, and pyarrow is told of it.
- structlog imports rich for tracebacks in color, which logs here never have.

Law: only the time of a start changes. No value differs, and every library works as if this were not here.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType


def import_leanly() -> None:
    """Import these libraries leanly from now on, in a process of one thread so far."""
    if not any(isinstance(finder, _LeanFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LeanFinder({"pyarrow": _without_pandas, "pandas": _known_to_pyarrow, "structlog": _without_rich}))


class _LeanFinder:
    """Runs the code of each module of *around* within its context manager, the first time that it is imported."""

    def __init__(self, around: dict[str, Callable[[], AbstractContextManager[None]]]) -> None:
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
def _without_rich() -> Iterator[None]:
    with _hidden("rich"):
        yield
