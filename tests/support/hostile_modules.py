"""
A folder full of modules that nobody asked for: one for each top-level name that Python, Tidegate or an installed package has.

Each writes its name into the file ``imported`` when it is imported, and ends the process.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib.metadata import packages_distributions
from pathlib import Path

_HOSTILE = """\
import os
with open({record!r}, "a") as record:
    record.write({name!r} + "\\n")
os._exit(66)
"""


def plant_modules(folder: Path, without: Collection[str] = ()) -> set[str]:
    """Write the modules into *folder*; return their names."""
    own = {"ordering", "ingest", "query", "sinks", "tidegate"}
    names = {name for name in {*sys.stdlib_module_names, *packages_distributions(), *own} if name.isidentifier()} - set(without)
    for name in names:
        (folder / f"{name}.py").write_text(_HOSTILE.format(record=str(folder / "imported"), name=name))
    return names
