"""
The public interface for packages that bring a store: they import these names and no others of ``sinks`` or ``tidegate``.
docs/operate/sinks.md explains them; examples/sqlite is such a package. Names here keep their meaning; the modules that define them may
move.

======================================  ===============================================================================
:class:`InstalledStore`                 the table ``[outputs.NAME.KIND]``, whose class an entry point in ``tidegate.stores``
                                        names; ``Count``, ``Duration``, ``Kind`` and :class:`Contradiction` make its settings
:class:`Store`                          the contract, with what its methods take and return: :class:`StoreContext`,
                                        :class:`Stream`, :class:`Batch`, :class:`Rows`, :class:`Progress`
:class:`StoreError`,                    the errors of these methods: repeating does not help; the store does not answer; it
:class:`UnreachableError`,              asks for a pause; it does not take some rows
:class:`TryLater`,
:class:`RowsRefused`, :class:`Refusal`
``make_schema``, ``make_typed_table``,  rows as columns with the query's types; the refused rows, found by halving
``find_refusals``
:class:`ReadableStore`,                 for ``tidegate verify``: reading the rows of the store
:class:`StoreReader`, :class:`Standing`,
``Keeps``
``pause_at``                            a point between two steps of a commit where tests can kill a job
======================================  ===============================================================================
"""

from __future__ import annotations

from ordering.errors import UnreachableError
from sinks.stores.base import (
    Batch,
    InstalledStore,
    Progress,
    Refusal,
    Rows,
    RowsRefused,
    Store,
    StoreContext,
    StoreError,
    Stream,
    TryLater,
    find_refusals,
)
from sinks.stores.reading import Keeps, ReadableStore, Standing, StoreReader
from sinks.stores.typed_rows import make_typed_table
from tidegate.basics.fault_points import pause_at
from tidegate.platform.settings.kinds import Duration, Kind
from tidegate.platform.settings.tables.base import Contradiction, Count
from tidegate.records.result_columns import make_schema

__all__ = [
    "Batch",
    "Contradiction",
    "Count",
    "Duration",
    "InstalledStore",
    "Keeps",
    "Kind",
    "Progress",
    "ReadableStore",
    "Refusal",
    "Rows",
    "RowsRefused",
    "Standing",
    "Store",
    "StoreContext",
    "StoreError",
    "StoreReader",
    "Stream",
    "TryLater",
    "UnreachableError",
    "find_refusals",
    "make_schema",
    "make_typed_table",
    "pause_at",
]
