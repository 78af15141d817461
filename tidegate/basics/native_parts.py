"""
The parts written in C, compiled by ``hatch_build.py``.

Law: without them everything works with the same results, only slower. A part that was compiled from other sources than those beside it
counts as not compiled.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Environment variable: ``auto`` (the default) or ``off``; in ``tidegate.toml`` it is ``kafka.native``.
NATIVE_SWITCH = "TIDEGATE_KAFKA__NATIVE"
# The symbol that each compiled part exports: the digest of the sources from which it was compiled.
SOURCES_SYMBOL = "tidegate_sources"


def is_enabled() -> bool:
    """Return whether settings allow the native parts."""
    return os.environ.get(NATIVE_SWITCH, "auto").strip().lower() != "off"


# The functions of a part by name: the type of the result, and the types of the arguments.
Signatures = Mapping[str, tuple[Any, list[Any]]]


def open_part(folder: Path, name: str, signatures: Signatures) -> ctypes.CDLL | None:
    """Open the compiled part *name* in *folder*; None if it is not compiled, is stale, or cannot be loaded."""
    try:
        part = ctypes.CDLL(str(folder / f"{name}.so"))
    except OSError:
        return None
    if is_stale(part, folder):
        return None
    declare(part, signatures)
    return part


def declare(part: ctypes.CDLL, signatures: Signatures) -> None:
    """Tell ctypes the types of the functions of *part*."""
    for name, (result, arguments) in signatures.items():
        function = getattr(part, name)
        function.restype, function.argtypes = result, arguments


def is_stale(part: ctypes.CDLL, folder: Path) -> bool:
    """
    Return whether *part* was compiled from other sources than those in *folder*, and log it. Functions of a stale part may expect other
    arguments than Python passes, and read foreign memory. A part without a digest does not count as stale.
    """
    try:
        compiled_from = ctypes.c_char.in_dll(part, SOURCES_SYMBOL)
    except (AttributeError, ValueError):
        return False
    here = digest_of_sources(folder)
    is_other = bool(here) and ctypes.string_at(ctypes.addressof(compiled_from)).decode() != here
    if is_other:
        logging.getLogger(__name__).warning("a compiled part in %s is not of this version and is not used; run: make install", folder.name)
    return is_other


def digest_of_sources(folder: Path) -> str:
    """Return a digest of the C sources in *folder*; empty if there are none."""
    sources = [source.read_bytes() for source in sorted(folder.glob("*.[ch]"))]
    return hashlib.sha256(b"\0".join(sources)).hexdigest() if sources else ""
