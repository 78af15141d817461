"""
Checks that Python finds our own packages: ``ordering``, ``ingest``, ``query`` and ``sinks`` are names that others may use too.

Law: a command runs only if all of them are found beside this very ``tidegate`` package.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import tidegate
from ordering.errors import TidegateError

PACKAGES = ("ordering", "ingest", "query", "sinks")


class ShadowedError(TidegateError):
    """A foreign module is imported under the name of one of this distribution's packages."""

    exit_code = 2
    default_code = "TG-SHADOWED"


def check_provenance() -> None:
    """Raise ShadowedError if Python finds another module under the name of one of this distribution's packages, or none."""
    own_folder = Path(next(iter(tidegate.__path__))).resolve().parent
    for name in PACKAGES:
        location = _location_of(name)
        if location != own_folder / name:
            what = f"{name!r} is {location or 'nowhere to be found'}, not Tidegate's own package"
            fix = "remove or rename the intruder, take its folder out of PYTHONPATH, or give Tidegate a virtual environment of its own"
            raise ShadowedError(what, where=str(own_folder / name), fix=fix)


def _location_of(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.origin is None:  # a folder of that name without __init__.py: it has search locations instead of a file
        return Path(next(iter(spec.submodule_search_locations or []), "")).resolve()
    origin = Path(spec.origin).resolve()
    return origin.parent if origin.name == "__init__.py" else origin
