"""
Reference data: tables in which JOIN looks rows up. A table has versions, each a file that is valid from an instant on until the next one
begins.
Law: time alone decides which version counts, so a lookup does not depend on when a file was read, unless the version arrived too late
(:mod:`query.reference.lookup`). Records of every file format become JSON objects, whose fields are read like those of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from ordering.arrays import Ints
from ordering.ticks import NEVER
from query.reference.csv_types import TypeWarning
from tidegate.language.expressions.binding.input_schema import InputSchema


@dataclass(frozen=True, eq=False)
class Version:
    """One version of a table."""

    # From when on it is valid, microseconds; ``NEVER``: always.
    effective_us: int
    # Its records, JSON objects in the order of the file (binary).
    values: pa.Array


@dataclass(frozen=True, eq=False)
class ReferenceTable:
    """One table."""

    # Its name and its fields, as far as they are known.
    schema: InputSchema
    # Its versions; they become valid one after the other.
    versions: tuple[Version, ...]
    # The columns whose type may not be what was meant.
    warnings: tuple[TypeWarning, ...] = ()

    def version_at(self, system_us: Ints) -> Ints:
        """Return the number of the version valid at each instant, -1 before the first."""
        begins = np.array([version.effective_us for version in self.versions], dtype=np.int64)
        return np.searchsorted(begins, system_us, side="right") - 1

    def with_delays(self, since_us: Mapping[int, int]) -> ReferenceTable:
        """
        Return the table with versions that count only from later instants on: *since_us* has these by their own instants. A version is left
        out if a newer one then begins before it or with it.
        """
        begins = [
            (max(since_us.get(version.effective_us, NEVER), version.effective_us), version.effective_us, version)
            for version in self.versions
        ]
        begins.sort(key=lambda begin: begin[:2])
        valid: list[tuple[int, int, Version]] = []
        for begin in begins:
            if not valid or begin[1] > valid[-1][1]:
                valid = [*(version for version in valid if version[0] < begin[0]), begin]
        return ReferenceTable(self.schema, tuple(Version(since, version.values) for since, _, version in valid))

    @property
    def records(self) -> pa.Table:
        """The records of all versions, in the columns of events; ``sub`` is the version's number."""
        counts = [len(version.values) for version in self.versions]
        number = np.repeat(np.arange(len(counts)), counts)
        total = len(number)
        begins = np.array([version.effective_us for version in self.versions], dtype=np.int64)
        columns = {
            "position": np.arange(total),
            "sub": number,
            "system_us": begins[number],
            "partition_id": np.zeros(total, dtype=np.int32),
            "value": pa.chunked_array([version.values for version in self.versions], pa.binary()),
        }
        return pa.table(columns)


NO_REFERENCES: Mapping[str, ReferenceTable] = MappingProxyType({})
