"""Whether the stores of an output fit its query, asked before anything starts: for ``tidegate lint`` and ``tidegate plan``."""

from __future__ import annotations

from collections.abc import Sequence

from ordering.errors import TidegateError, UnreachableError
from sinks.parquet_columns import Column, are_known
from sinks.stores.base import StoreContext, StoreError, Stream
from sinks.stores.registry import make_store
from tidegate.settings.tables.outputs import OutputSettings


def check_stores(output: OutputSettings, columns: Sequence[Column]) -> list[TidegateError]:
    """
    Return what stands against copying results with *columns* into the stores of *output*: a StoreError for each store that does not fit,
    an UnreachableError for each that does not answer. Nothing is changed.
    """
    if output.stores and not are_known(columns):
        what = f"the query selects *, so nobody can say which columns {output.name} has in its stores"
        return [StoreError(what, code="TG-STORE-COLUMNS", where=f"outputs.{output.name}", fix="name the columns in SELECT")]
    context = StoreContext(output.name, Stream(output.topic or output.name, "", 1), columns)
    found: list[TidegateError] = []
    for kind, settings in output.stores.items():
        try:
            store = make_store(kind, settings, context)
            try:
                store.check()
            finally:
                store.close()
        except (StoreError, UnreachableError) as error:
            found.append(error)
    return found
