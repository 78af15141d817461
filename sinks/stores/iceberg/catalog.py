"""The catalog of an Iceberg table, and the table in it: for results and for reference data."""

from __future__ import annotations

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError, ProgrammingError

from sinks.stores.iceberg.failures import translate_errors
from sinks.stores.iceberg.rest_timeouts import limit_rest_requests
from tidegate.platform.settings.kinds import reveal_properties
from tidegate.platform.settings.tables.references import ReferenceIceberg
from tidegate.platform.settings.tables.stores.iceberg import IcebergSettings

TableSettings = IcebergSettings | ReferenceIceberg


def open_catalog(settings: TableSettings, **more: str) -> Catalog:
    """Return the catalog; *more* are properties that the settings do not give."""
    limit_rest_requests()
    return load_catalog(settings.catalog_name, **{**reveal_properties(settings.catalog), **more})


def find_table(catalog: Catalog, settings: TableSettings) -> Table | None:
    """Return the table, None if there is none."""
    try:
        return catalog.load_table(settings.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def look_up(settings: TableSettings, where: str) -> Table | None:
    """Return the table, None if there is none, without making anything. Raises StoreError, UnreachableError: the catalog does not say."""
    with translate_errors(where):
        # Without this property the client makes the tables of an SQL catalog at once.
        catalog = open_catalog(settings, init_catalog_tables="false")
        try:
            return find_table(catalog, settings)
        except (OperationalError, ProgrammingError) as error:
            # An SQL catalog without tables is empty.
            if not any(text in str(error) for text in ("no such table", "UndefinedTable")):
                raise
            return None
        finally:
            catalog.close()
