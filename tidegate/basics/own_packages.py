"""
Whose modules Python finds under the names ``ordering``, ``ingest``, ``query`` and ``sinks``, which others may use too.

Law: a module of somebody else is named before one of ours fails for it, and nothing of it is run. Imports the standard library only, since
``ordering`` itself may be somebody else's.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tidegate
from tidegate.basics.visible_text import visible_lines

PACKAGES = ("ordering", "ingest", "query", "sinks")


@dataclass(frozen=True, slots=True)
class Intruder:
    """A module that stands where a package of ours should be."""

    name: str
    # Where Python finds it; None: nowhere.
    location: Path | None
    # Where the package of ours is.
    own_location: Path
    code = "TG-SHADOWED"

    @property
    def what(self) -> str:
        """One sentence: the problem."""
        return f"{self.name!r} is {self.location or 'nowhere to be found'}, not Tidegate's own package"

    @property
    def fix(self) -> str:
        """How to solve it."""
        if self.location is None:
            return "install Tidegate again: all of its packages stand in one folder"
        return f"rename {self.location.name}, or take its folder off Python's path: PYTHONPATH, and for the working folder PYTHONSAFEPATH=1"

    def __str__(self) -> str:
        return f"{self.code}: {self.what}\n  where: {self.own_location}\n  fix: {self.fix}"


def find_intruder(names: Sequence[str] = PACKAGES) -> Intruder | None:
    """Return the first of *names* under which Python finds another module than ours, or none; None if all are ours."""
    own_folder = Path(next(iter(tidegate.__path__))).resolve().parent
    for name in names:
        location = _location_of(name)
        if location != own_folder / name:
            return Intruder(name, location, own_folder / name)
    return None


def require_own(*names: str) -> None:
    """Raise ImportError, with the fix, if Python finds another module than ours under one of these names."""
    if (intruder := find_intruder(names)) is not None:
        raise ImportError(str(intruder), name=intruder.name, path=str(intruder.location))


def end_unless_own(*names: str) -> None:
    """End this process, with the fix on standard error, if Python finds another module than ours under one of these names."""
    if (intruder := find_intruder(names)) is not None:
        print(visible_lines(str(intruder)), file=sys.stderr)
        raise SystemExit(2)


def _location_of(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module made by hand has no spec
        return Path(getattr(sys.modules[name], "__file__", None) or f"<{name}>")
    if spec is None:
        return None
    if spec.origin is None:  # a folder of that name without __init__.py: it has search locations instead of a file
        return Path(next(iter(spec.submodule_search_locations or []), "")).resolve()
    origin = Path(spec.origin).resolve()
    return origin.parent if origin.name == "__init__.py" else origin
