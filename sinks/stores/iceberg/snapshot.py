"""The current snapshot of an Iceberg table, for reference data."""

from __future__ import annotations

import pyarrow as pa

from sinks.stores.iceberg.catalog import look_up
from sinks.stores.iceberg.failures import translate_errors
from sinks.stores.lake_reader import LakeSnapshot
from tidegate.platform.settings.tables.references import ReferenceIceberg


def find_snapshot(settings: ReferenceIceberg, where: str) -> LakeSnapshot | None:
    """Return the current snapshot, None if there is no table. Raises UnreachableError, StoreError: it cannot be read."""
    table = look_up(settings, where)
    if table is None:
        return None
    with translate_errors(where):
        current = table.current_snapshot()
        scan = table.scan(snapshot_id=current.snapshot_id if current else None)
        size_bytes = sum(task.file.file_size_in_bytes for task in scan.plan_files()) if current else 0

    def read_rows() -> pa.Table:
        with translate_errors(where):
            return scan.to_arrow() if current else table.schema().as_arrow().empty_table()

    return LakeSnapshot(settings.table, f"iceberg {current.snapshot_id if current else 0}", size_bytes, read_rows)
