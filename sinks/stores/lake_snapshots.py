"""A version of a table of files, as reference data reads it: found first, and read only if it is new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class LakeSnapshot:
    """One version of a table."""

    name: str
    # What the table calls it.
    version: str
    # The size of its files.
    size_bytes: int
    read_rows: Callable[[], pa.Table]
