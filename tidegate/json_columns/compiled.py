"""Where the native parts of this package are: ``hatch_build.py`` puts them beside it."""

from __future__ import annotations

import ctypes
from pathlib import Path


def open_part(name: str) -> ctypes.CDLL | None:
    """Open a part by the name of its file without the ending; None where it was not compiled or this machine cannot open it."""
    compiled = next(iter(sorted(Path(__file__).parent.glob(f"{name}*.so"))), None)
    if compiled is None:
        return None
    try:
        return ctypes.CDLL(str(compiled))
    except OSError:
        return None
