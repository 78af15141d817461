"""The newest version of a Delta table, for reference data."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from sinks.stores.delta.target import translate_errors
from sinks.stores.lake_reader import LakeSnapshot
from tidegate.platform.settings.kinds import reveal_properties
from tidegate.platform.settings.tables.references import ReferenceDelta


def find_snapshot(settings: ReferenceDelta, where: str) -> LakeSnapshot | None:
    """Return the newest version, None if there is no table. Raises UnreachableError, StoreError: it cannot be read."""
    with translate_errors(where):
        try:
            table = DeltaTable(settings.path, storage_options=reveal_properties(settings.storage_options))
        except TableNotFoundError:
            return None
        sizes = pa.table(table.get_add_actions(flatten=True))["size_bytes"].to_pylist()

    def read_rows() -> pa.Table:
        with translate_errors(where):
            return table.to_pyarrow_dataset().to_table()

    return LakeSnapshot(settings.path, f"delta {table.version()}", sum(sizes), read_rows)
