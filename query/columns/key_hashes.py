"""
Key hashes: which rows of a table may have the keys of another's.

Law: within one process, rows with equal keys of equal types have equal hashes. So matching by hash finds all rows with a key of the other
table, and rarely another row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.language.expressions.duckdb_pool import run


@dataclass(frozen=True)
class KeyHashes:
    """The hashes of a table's keys."""

    # Names of the key columns.
    columns: tuple[str, ...]
    # The hashes, rising.
    sorted_hashes: npt.NDArray[np.uint32]
    # The row of each.
    rows: npt.NDArray[np.int32]

    @classmethod
    def of(cls, keys: pa.Table) -> KeyHashes:
        # 0.0 and -0.0 are equal but have different bits; adding 0.0 makes them one.
        names = [f"{name} + 0.0" if pa.types.is_floating(keys.field(name).type) else name for name in keys.column_names]
        hashes = run(f"SELECT CAST(hash({', '.join(names)}) % 4294967296 AS UINTEGER) AS h FROM input", input=keys)["h"].to_numpy()
        order = np.argsort(hashes, kind="stable").astype(np.int32)
        return cls(tuple(keys.column_names), hashes[order], order)

    def is_comparable_to(self, other: KeyHashes) -> bool:
        """Return whether both have the same columns, one for each key: only then do unequal hashes mean unequal keys."""
        keys = [name.partition("_")[0] for name in self.columns]
        return self.columns == other.columns and len(set(keys)) == len(keys)

    def matching_rows(self, other: KeyHashes) -> pa.Array:
        """Return the rows with a hash of the other's, rising."""
        distinct_hashes = np.unique(other.sorted_hashes)
        first, last = (np.searchsorted(self.sorted_hashes, distinct_hashes, side=side) for side in ("left", "right"))
        counts = last - first
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        return pa.array(np.sort(self.rows[np.repeat(first, counts) + within]))
