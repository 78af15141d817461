"""The table ``[outputs.NAME.sqlite]``: results as rows of a table in an SQLite file."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.sinks.extending import Count, InstalledStore, Kind, Store, StoreContext


class SqliteSettings(InstalledStore):
    """[outputs.NAME.sqlite]: results as rows of a table in an SQLite file."""

    # One writer excludes the others: more connections would only wait.
    connections: Count = Field(default=1, description="How many partitions are written at the same time, each over its own connection.")
    path: Annotated[str, Kind("file")] = Field(min_length=1, description="The file; made when missing, in a folder that is there.")
    table: Annotated[str | None, Kind("name; default: the output's name")] = Field(
        default=None, min_length=1, description="The table that gets the results; made when missing."
    )

    def make_store(self, context: StoreContext) -> Store:
        """See :meth:`sinks.extending.InstalledStore.make_store`."""
        from tidegate_sqlite.store import SqliteStore

        return SqliteStore(context, self)
