"""
Makes the stores of an output, by the names of their tables in ``[outputs.NAME]``: the built-in kinds below, and those of installed packages
(:class:`sinks.stores.base.InstalledStore`).

A store's module is imported only if an output has its table, because the clients of stores are extras of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from sinks.stores.base import InstalledStore, Store, StoreContext, StoreError
from tidegate.platform.settings.tables.stores.base import StoreSettings

# By built-in kind of store: its class, as module:class, and the package that it needs.
_STORES = {
    "clickhouse": ("sinks.stores.clickhouse.store:ClickHouseStore", "httpx2"),
    "delta": ("sinks.stores.delta.store:DeltaStore", "deltalake"),
    "http": ("sinks.stores.http.store:HttpStore", "httpx2"),
    "iceberg": ("sinks.stores.iceberg.store:IcebergStore", "pyiceberg"),
    "postgres": ("sinks.stores.postgres.store:PostgresStore", "psycopg"),
    "redis": ("sinks.stores.redis.store:RedisStore", "redis"),
}


def make_store(kind: str, settings: StoreSettings, context: StoreContext) -> Store:
    """Return the store of kind *kind*, not connected yet. Raises StoreError (TG-STORE-EXTRA): its client is not installed."""
    if isinstance(settings, InstalledStore):
        return settings.make_store(context)
    module, _, name = _STORES[kind][0].partition(":")
    maker: Callable[[StoreContext, Any], Store] = getattr(import_client(module, kind, f"outputs.{context.output}.{kind}"), name)
    return maker(context, settings)


def import_client(module: str, kind: str, where: str) -> ModuleType:
    """Import a module that uses the client of a kind of store. Raises StoreError (TG-STORE-EXTRA): it is not installed."""
    package = _STORES[kind][1]
    try:
        return import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != package and package not in str(error):
            raise
        raise StoreError(
            f"{kind} needs the package {package}, which cannot be imported: {error}",
            code="TG-STORE-EXTRA",
            where=where,
            fix=f"install tidegate with what {kind} needs",
            example=f"pip install 'tidegate[{kind}]'",
        ) from None
