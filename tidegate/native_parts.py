"""
The parts written in C: whether they may be used, and where ``hatch_build.py`` puts them.

Law: everything works without them, with the same results, only slower.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Environment variable: ``auto`` (the default) or ``off``; in ``tidegate.toml`` it is ``kafka.native``.
NATIVE_SWITCH = "TIDEGATE_KAFKA__NATIVE"


def is_enabled() -> bool:
    """Return whether native parts may be used if they are there."""
    return os.environ.get(NATIVE_SWITCH, "auto").strip().lower() != "off"


def open_part(folder: Path, name: str) -> ctypes.CDLL | None:
    """Open the compiled part *name* in *folder*; None if it was not compiled or this machine cannot open it."""
    try:
        return ctypes.CDLL(str(folder / f"{name}.so"))
    except OSError:
        return None
