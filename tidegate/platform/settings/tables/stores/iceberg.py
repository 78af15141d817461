"""The table [outputs.NAME.iceberg]: results as rows of an Iceberg table."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.platform.settings.kinds import Kind, Properties
from tidegate.platform.settings.tables.base import Connections
from tidegate.platform.settings.tables.stores.base import LakeSettings


class IcebergSettings(LakeSettings):
    """[outputs.NAME.iceberg]: results as rows of an Iceberg table."""

    # Commits of one table exclude each other: more connections would only repeat each other's work.
    connections: Connections = Field(
        default=1, description="How many partitions are written at the same time, each over its own connection."
    )
    table: Annotated[str, Kind("namespace.table")] = Field(
        pattern=r"^[^.\s]+(\.[^.\s]+)+$", description="The table that gets the results; made when missing, with its namespace."
    )
    catalog_name: str = Field(default="default", min_length=1, description="Name of the catalog; an SQL catalog keeps tables under it.")
    # A table comes last.
    catalog: Properties = Field(
        default_factory=dict,
        description="The catalog and its object store, by the names of pyiceberg: type, uri, warehouse, s3.endpoint; secrets as "
        "file:PATH or env:NAME.",
    )
