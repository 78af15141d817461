"""The current snapshot of an Iceberg table, for reference data."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from sqlalchemy.exc import OperationalError, ProgrammingError

from sinks.stores.iceberg.failures import translate_errors
from sinks.stores.iceberg.rest_timeouts import limit_rest_requests
from sinks.stores.lake_snapshots import LakeSnapshot
from tidegate.platform.settings.kinds import reveal_properties
from tidegate.platform.settings.tables.references import ReferenceIceberg


def find_snapshot(settings: ReferenceIceberg, where: str) -> LakeSnapshot | None:
    """Return the current snapshot, None if there is no table. Raises UnreachableError, StoreError: it cannot be read."""
    limit_rest_requests()
    with translate_errors(where):
        catalog = load_catalog(settings.catalog_name, **{"init_catalog_tables": "false", **reveal_properties(settings.catalog)})
        try:
            table = catalog.load_table(settings.table)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (OperationalError, ProgrammingError) as error:
            # An SQL catalog without tables is empty.
            if not any(text in str(error) for text in ("no such table", "UndefinedTable")):
                raise
            return None
        finally:
            catalog.close()
        current = table.current_snapshot()
        scan = table.scan(snapshot_id=current.snapshot_id if current else None)
        size_bytes = sum(task.file.file_size_in_bytes for task in scan.plan_files()) if current else 0

    def read_rows() -> pa.Table:
        with translate_errors(where):
            return scan.to_arrow() if current else table.schema().as_arrow().empty_table()

    return LakeSnapshot(settings.table, f"iceberg {current.snapshot_id if current else 0}", size_bytes, read_rows)
