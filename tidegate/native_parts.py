"""The parts written in C, compiled by ``hatch_build.py``. Law: without them everything works with the same results, only slower."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Environment variable: ``auto`` (the default) or ``off``; in ``tidegate.toml`` it is ``kafka.native``.
NATIVE_SWITCH = "TIDEGATE_KAFKA__NATIVE"


def is_enabled() -> bool:
    """Return whether settings allow the native parts."""
    return os.environ.get(NATIVE_SWITCH, "auto").strip().lower() != "off"


def open_part(folder: Path, name: str) -> ctypes.CDLL | None:
    """Open the compiled part *name* in *folder*; None if it is not compiled or cannot be loaded."""
    try:
        return ctypes.CDLL(str(folder / f"{name}.so"))
    except OSError:
        return None
