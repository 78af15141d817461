"""The settings of all stores: how results are written in batches, and what happens to results that a store does not take."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ordering.ticks import MILLISECOND_US, SECOND_US
from tidegate.platform.settings.kinds import Duration, Kind
from tidegate.platform.settings.tables.base import Connections, Count, Table

FLUSH_INTERVAL = "A batch with fewer results is written after this time, and when the job is asked to stop."
# The default of stores in which a small batch costs some milliseconds and leaves no file behind.
PROMPT_US = 50 * MILLISECOND_US


class StoreSettings(Table):
    """The settings that every store has."""

    # The setting that names the store to tidegate verify.
    named_by: ClassVar[str] = "table"

    batch_rows: Count = Field(default=50_000, description="Most results of a partition written at once.")
    flush_interval_us: Duration = Field(default=SECOND_US, description=FLUSH_INTERVAL)
    connections: Connections = Field(
        default=2, description="How many partitions are written at the same time, each over its own connection."
    )
    max_retries: Annotated[Count | None, Kind("count; default: without limit")] = Field(
        default=None, description="How often in a row a store that does not answer is tried again before the job stops."
    )
    on_error: Literal["stop", "dead_letter"] = Field(
        default="stop", description="What happens to a result that the store does not take; dead_letter: it goes to the dead-letter topic."
    )


# Not a setting of every store: only of those whose tables have columns.
SchemaEvolution = Annotated[
    Literal["none", "add"],
    Field(description="add: columns of the query that the table lacks are added to it; none: the job does not start."),
]


class LakeSettings(StoreSettings):
    """The settings of stores that are tables of files."""

    partition_by: Annotated[tuple[str, ...], Kind("list of columns; default: none, or the table's own")] = Field(
        default=(), description="The columns whose values part the files of a table that is made into folders."
    )
    schema_evolution: SchemaEvolution = "none"
